"""Catalog: what else a whole connection writes down and answers; each module is one noun.

sql_rows         rows of any table of any database, which queries and writes are carried out with.
catalog_part     what they share: reading and writing.
statistics_rows  what a run has left so far, in numbers.
integrity_rows   what verifications found; what to verify next.
intent_rows      deletions that were decided and are not finished.
audit_rows       what migrations leave in the log.
"""
