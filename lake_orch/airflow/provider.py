"""What Airflow asks of a provider. Every `import airflow` loads this module, so it imports nothing."""


def get_provider_info() -> dict[str, object]:
    """Return the connection type, the decorator, the URIs of assets and the links that this package adds to Airflow.

    An error here would stop every process of Airflow, so each value is one that the schemas of all supported versions
    take.
    """
    return {
        "package-name": "lake-orch",
        "name": "Lake",
        "description": "Transactions for lakes of tables, arrays, pools and files, with no server to run.",
        "connection-types": [
            {
                "connection-type": "lake",
                "hook-class-name": "lake_orch.airflow.hook.LakeHook",
                "hook-name": "Lake",
                "ui-field-behaviour": {
                    "hidden-fields": ["schema", "login", "port"],
                    "relabeling": {
                        "host": "Root",
                        "password": "Storage options (JSON, secret)",
                        "extra": "Storage options (JSON)",
                    },
                    "placeholders": {
                        "host": "s3://bucket/lake",
                        "password": '{"secret_access_key": "…"}',
                        "extra": '{"storage_options": {"region": "eu-central-1"}}',
                    },
                },
            }
        ],
        "task-decorators": [{"class-name": "lake_orch.airflow.decorator.lake_task", "name": "lake"}],
        "asset-uris": [
            {
                "schemes": ["lake"],
                "handler": "lake_orch.airflow.asset_uri.sanitize_uri",
                "to_openlineage_converter": "lake_orch.airflow.lineage.openlineage_dataset",
            }
        ],
        "extra-links": [
            f"lake_orch.airflow.links.{name}" for name in ("CommitLink", "CompareLink", "SessionLink", "DatasetLink")
        ],
    }
