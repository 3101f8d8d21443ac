"""Objects in a cloud: S3, Google Cloud Storage, Azure Storage.

`store.CloudStore` implements the store, `requests` sends requests and retries them, `failure` interprets responses.
Each cloud has a module for its URLs, options and credentials.
"""
