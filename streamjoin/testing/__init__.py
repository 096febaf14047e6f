"""Runs your own join in pytest on a real broker: job, service and Kafka as containers.

    pip install 'streamjoin[testing]'

    # conftest.py
    pytest_plugins = ["streamjoin.testing.plugin"]

    # test_join.py
    def test_click_matches_its_impression(start_join):
        with start_join("join.yaml") as join:
            join.left({"ad_id": 1, "shown_at": "2026-01-31T12:00:00Z"})
            join.right({"ad_id": 1, "clicked_at": "2026-01-31T12:00:05Z", "user": "ada"})
            join.expect({"ad_id": 1, "user": "ada"})

Requires a Docker engine. Without one the tests are skipped with the reason, or fail if
`DOCKER_REQUIRED=yes` is set, as in CI.
"""

from streamjoin.testing.broker import Broker
from streamjoin.testing.images import Images
from streamjoin.testing.join import RunningJoin
from streamjoin.testing.topics import Record

__all__ = ["Broker", "Images", "Record", "RunningJoin"]
