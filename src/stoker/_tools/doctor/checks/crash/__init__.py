"""STK8xx: workers that died, hung or were refused."""
