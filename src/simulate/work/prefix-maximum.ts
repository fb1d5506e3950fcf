/**
 * Keeps the greatest of many numbers, of which the first ones grow together, while numbers are
 * appended and amounts are added to all numbers before a place. It gives the greatest, and the
 * first place that has it. Both take a logarithm of the count (a segment tree whose additions stay
 * at the nodes that they cover).
 */
export class PrefixMaximum {
  private readonly leaves: number;
  /**
   * By node, 1 is the root: the greatest number below it, what was added at it and below it
   * included.
   */
  private readonly most: Float64Array;
  private readonly added: Float64Array;
  private count = 0;

  constructor(capacity: number) {
    let leaves = 1;
    while (leaves < capacity) leaves *= 2;
    this.leaves = leaves;
    this.most = new Float64Array(2 * leaves).fill(-Infinity);
    this.added = new Float64Array(2 * leaves);
  }

  /** Nothing was added to its place before, as only places that are taken are added to. */
  append(value: number): void {
    let node = this.leaves + this.count++;
    this.most[node] = value;
    while ((node >>= 1) > 0) this.renew(node);
  }

  /** Adds to the numbers of the places before `end`, all of them taken. */
  addBefore(end: number, amount: number): void {
    const { most, added } = this;
    let node = 1;
    let width = this.leaves;
    let rest = end;
    while (rest > 0 && rest < width) {
      width /= 2;
      node *= 2;
      if (rest <= width) continue;
      most[node] += amount;
      added[node] += amount;
      node++;
      rest -= width;
    }
    if (rest > 0) {
      most[node] += amount;
      added[node] += amount;
    }
    while ((node >>= 1) > 0) this.renew(node);
  }

  /** -Infinity before anything is appended. */
  get value(): number {
    return this.most[1];
  }

  /** The first place of the greatest number. */
  get place(): number {
    let node = 1;
    while (node < this.leaves)
      node = 2 * node + Number(this.most[2 * node] < this.most[2 * node + 1]);
    return node - this.leaves;
  }

  private renew(node: number): void {
    this.most[node] = Math.max(this.most[2 * node], this.most[2 * node + 1]) + this.added[node];
  }
}
