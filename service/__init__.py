"""The sidecar: shows what the job is doing and passes commands on to it."""
