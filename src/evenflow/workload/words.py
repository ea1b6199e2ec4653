"""Common English words, of one or two tokens each in most vocabularies."""

# A workload's seed means the same prompts only as long as this list stays as it is.
_TEXT = """
the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one
you were all her she there would their we him been has when who will no more if out so up said what its about than
into them can only other time new some could these two may first then do any like my now over such our man me even
most made after also did many off before must well back through years much where your way down should because long
each just state those people too mr how little good world make very year still see own work men day get here old
between life both under last never know us great since against go came right used take three himself few house use
during without again place around however home small found thought went say part once general high upon school every
system water number group public computer language model memory engine request queue batch server token river mountain
history science question
"""

WORDS: tuple[str, ...] = tuple(_TEXT.split())
