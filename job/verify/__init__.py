"""`streamjoin output verify`: the results of a join, compared with the executable specification on
the records of its topics."""
