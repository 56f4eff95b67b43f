"""What tests of tracking stand on: a database of each kind, and servers that can be killed."""

from tests.ground.database_servers import (  # noqa: F401
    database_url,
    mariadb,
    mariadb_url,
    postgres,
    postgres_url,
    sqlite_url,
)
