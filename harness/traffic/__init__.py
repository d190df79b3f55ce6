"""What is asked and when: lengths, prompts, due times, plans. Pure: every random number comes from a seed."""
