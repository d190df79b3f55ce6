"""Prompts of a given number of words, no two alike from their first words on. Pure: a function of seed and key."""

from array import array

import numpy as np

CORPUS_WORDS = 1 << 17
HEAD_WORDS = 8
"""Words that spell the key. 414⁸ > 2⁶⁴, and fewer than the 16 tokens of the usual cache block."""
MASK = (1 << 64) - 1
SCATTER = 0x9E3779B97F4A7C15
"""2⁶⁴/φ, odd: multiplying by it modulo 2⁶⁴ maps keys one to one and sends neighbours far apart."""

# Short and common, so that vocabularies of 32,000 entries and more hold each as one token.
COMMON = """
able about above act add after again age ago air all allow almost along also always among and animal answer any
appear area arm army around art ask away baby back bad bag ball bank bar base bear beat become bed before begin
behind believe below best better between big bill bird bit black block blood blue board boat body book born both
bottom box boy bring brother brown build burn bus business but buy call came can car card care carry case catch
cause cell center century chair chance change check child church circle city class clean clear close coast cold
color come common company cook cool corner cost could count country course court cover cross cry cup cut dance dark
date daughter day dead deal death decide deep desk did die dinner doctor dog dollar door down draw dream dress
drink drive drop dry during each early earth east easy eat edge effect egg eight else end energy enough enter even
evening event ever every eye face fact fall family far farm fast father fear feel feet few field fight figure fill
film find fine finger finish fire first fish five floor fly follow food foot for force forest form four free
friend from front fruit full game garden gave get girl give glass goal gold good got great green ground group grow
gun hair half hall hand happy hard hat have he head hear heart heat heavy help her here high hill him his history
hit hold hole home hope horse hospital hot hotel hour house how human hundred ice idea if image inside iron island
it job join just keep key kid kill kind king kitchen knew know lady lake land language large last late laugh law
lay lead learn least leave left leg less let letter level life light like line list listen little live long look
lose lot love low machine main make man many map mark market may mean measure meet men method middle might mile
milk mind minute miss modern moment money month moon more morning most mother mountain mouth move much music must
name near neck need never new news next night nine no north nose note nothing now number ocean of off office oil
old on once one only open or order other our out over own page paint pair paper parent park part party pass past
pay peace people person phone picture piece place plan plane plant play point police pool poor power
"""
WORDS = tuple(COMMON.split())


class Prompts:
    """Texts of any length cut from one corpus; cutting costs the same whatever the length, but for the copy."""

    def __init__(self, seed: int) -> None:
        """Builds the corpus: `CORPUS_WORDS` words, a space before each, and the offset of every such space."""
        rng = np.random.default_rng(seed)
        self._words = [WORDS[index] for index in rng.permutation(len(WORDS)).tolist()]
        drawn = rng.integers(len(WORDS), size=CORPUS_WORDS)
        self._corpus = " " + " ".join([self._words[index] for index in drawn.tolist()])
        sizes = np.array([len(word) + 1 for word in self._words])
        self._starts = array("I", [0, *np.cumsum(sizes[drawn]).tolist()])

    def text(self, tokens: int, key: int) -> str:
        """A prompt of `tokens` words. Keys from 0 to 2⁶⁴-1 differ within the first 8 words. Raises ValueError.

        A prompt of fewer than 8 words is as distinct as so many words can be: one word has 414 values.
        """
        if tokens < 1 or not 0 <= key <= MASK:
            raise ValueError(f"tokens {tokens}, key {key}: expected tokens >= 1 and a key of 64 bits")
        scattered = (key + 1) * SCATTER & MASK  # + 1: key 0 would be eight times the same word
        head = self._head(scattered, min(tokens, HEAD_WORDS))
        return head + self._body(scattered % CORPUS_WORDS, tokens - HEAD_WORDS) if tokens > HEAD_WORDS else head

    def _head(self, number: int, words: int) -> str:
        """The number in base `len(WORDS)`, lowest digit first, with words for digits."""
        digits = []
        for _ in range(words):
            number, digit = divmod(number, len(self._words))
            digits.append(self._words[digit])
        return " ".join(digits)

    def _body(self, first: int, words: int) -> str:
        """So many corpus words from this one on, each with a space before it, round and round."""
        rounds, last = divmod(first + words, CORPUS_WORDS)
        begin, end = self._starts[first], self._starts[last]
        if rounds == 0:
            return self._corpus[begin:end]
        return self._corpus[begin:] + self._corpus * (rounds - 1) + self._corpus[:end]
