"""Objects in a cloud: S3, Google Cloud Storage, Azure Storage.

`store.CloudStore` has the verbs, `requests` tries them again, `failure` says what an answer means. A module for each
cloud has what differs: URLs, options, credentials.
"""
