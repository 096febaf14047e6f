"""OpenLineage: run events of the query for a catalog. Off without STREAMJOIN_OPENLINEAGE_URL.

Only `events` and `http` import the client, and only if the URL is set.
"""
