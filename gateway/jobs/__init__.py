"""Work that nobody waits for: scheduled jobs, webhooks, and the delivery of what they bring."""
