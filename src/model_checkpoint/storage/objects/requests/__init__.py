"""Requests: the one way to the objects of a bucket.

keys             where everything lies below the prefix of an object store.
bucket           the one way to the objects of a bucket. Every request of the store goes through here.
parallel         a few requests at a time, since each costs a round trip.
signed_requests  the few S3 requests obstore has no call for, signed here (AWS Signature Version 4).
failures         what an object store answered becomes an error that says where, what, and what to do next.
"""
