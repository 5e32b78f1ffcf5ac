"""The record of conversations: session keys, transcripts, the index, queues."""
