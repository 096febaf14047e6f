"""Life cycle and commands of the running job."""
