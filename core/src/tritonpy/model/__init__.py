"""What is loaded: the check of requests, instances on threads and in processes, statistics of executions."""
