"""Exchange with lakeFS: the export of a lake as a repository, its mirror on a server, the import of a repository."""
