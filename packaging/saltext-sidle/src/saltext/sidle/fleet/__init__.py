"""What a rollout decides: values in, values out. Nothing here knows Salt, a clock or a file."""
