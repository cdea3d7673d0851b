// A seeded generator of our own, so that a link shows everyone the same draws: xoshiro128** (Blackman and Vigna), its
// state filled by splitmix32 from the seed.

export class Random {
  constructor(seed) {
    let x = seed | 0;
    this.state = Array.from({ length: 4 }, () => {
      x = (x + 0x9e3779b9) | 0;
      let z = Math.imul(x ^ (x >>> 16), 0x21f0aaad);
      z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
      return (z ^ (z >>> 15)) >>> 0;
    });
    this.spare = null;
  }

  /** A whole number from 0 to 2**32 - 1. */
  word() {
    const s = this.state, turned = rotate(Math.imul(s[1], 5), 7), t = s[1] << 9;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 11);
    return Math.imul(turned, 9) >>> 0;
  }

  /** A number in (0, 1), never its ends. */
  uniform() {
    return (this.word() + 0.5) / 2 ** 32;
  }

  /** A standard normal number: two at a time from a point in the unit disc (Marsaglia). */
  normal() {
    if (this.spare !== null) {
      const kept = this.spare;
      this.spare = null;
      return kept;
    }
    for (;;) {
      const u = 2 * this.uniform() - 1, v = 2 * this.uniform() - 1, square = u * u + v * v;
      if (square >= 1 || square === 0) continue;
      const factor = Math.sqrt((-2 * Math.log(square)) / square);
      this.spare = v * factor;
      return u * factor;
    }
  }

  /** A whole number from 0 to below `bound`, all equally likely: words beyond the last full round are drawn again. */
  below(bound) {
    const full = 2 ** 32 - (2 ** 32 % bound);
    for (;;) {
      const word = this.word();
      if (word < full) return word % bound;
    }
  }

  /** The numbers 0 to count - 1 in random order. */
  permutation(count) {
    const order = Array.from({ length: count }, (_, i) => i);
    for (let i = count - 1; i > 0; i--) {
      const j = this.below(i + 1);
      [order[i], order[j]] = [order[j], order[i]];
    }
    return order;
  }
}

function rotate(word, places) {
  return (word << places) | (word >>> (32 - places));
}
