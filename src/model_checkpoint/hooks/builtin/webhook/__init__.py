"""Webhook: tells a web server, signed and in the background.

webhook_notifier    the hook: puts each event into a bounded queue and lets one thread deliver.
webhook_delivery    one request to one checked address; no redirect is followed.
webhook_addresses   where a notification may go.
webhook_signatures  proves to the receiver who sent it, and when.
"""
