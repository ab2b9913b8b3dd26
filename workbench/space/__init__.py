"""What may be searched: dimensions, the space a user writes, its size, and words that lengths turn into numbers.

Which candidate to try next is a matter of `search`.
"""
