/**
 * Protobuf wire format: fields of a message one after another, by number and wire type. Only what
 * is asked for is decoded; tensors of weights are stepped over. Every length is checked against the
 * bytes that are there.
 */

import { ShardwrightError } from '../../../errors.ts';
import { itemAt } from '../../../item-at.ts';

const VARINT = 0;
const FIXED64 = 1;
const BYTES = 2;
const FIXED32 = 5;

const MAX_DEPTH = 256;

export class WireReader {
  /** Number and wire type of the current field. */
  field = 0;
  wire = 0;
  private pos: number;
  /** End of the current field's value. */
  private after: number;
  private value = 0;
  private readonly view: DataView;

  constructor(
    readonly bytes: Uint8Array,
    readonly start = 0,
    readonly end = bytes.length,
    readonly depth = 0,
  ) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.pos = start;
    this.after = start;
    if (depth > MAX_DEPTH)
      throw new ShardwrightError(
        'E_LIMIT',
        `messages nest deeper than ${MAX_DEPTH}, at byte ${start}`,
        {
          hint: 'no model needs this; check where the file comes from',
        },
      );
  }

  /** Moves to the next field; false at the end of the message. */
  next(): boolean {
    this.pos = this.after;
    if (this.pos >= this.end) return false;
    const at = this.pos;
    const key = this.varint();
    this.field = Math.floor(key / 8);
    this.wire = key % 8;
    if (this.field < 1 || this.field > 536_870_911)
      throw this.fail(`field number ${this.field} does not exist`, at);
    switch (this.wire) {
      case VARINT:
        this.value = this.pos;
        this.skipVarint();
        break;
      case FIXED64:
        this.value = this.pos;
        this.pos += 8;
        break;
      case BYTES: {
        const length = this.varint();
        this.value = this.pos;
        this.pos += length;
        break;
      }
      case FIXED32:
        this.value = this.pos;
        this.pos += 4;
        break;
      default:
        throw this.fail(`wire type ${this.wire} is not used by ONNX`, at);
    }
    if (this.pos > this.end)
      throw this.fail(
        `field ${this.field} ends at byte ${this.pos}, behind its message (byte ${this.end})`,
        at,
      );
    this.after = this.pos;
    return true;
  }

  /** Byte offset of the current value. */
  get offset(): number {
    return this.value;
  }

  /** The message in the current field. */
  message(): WireReader {
    this.expect(BYTES);
    return new WireReader(this.bytes, this.value, this.after, this.depth + 1);
  }

  /** The bytes of the current field, not copied. */
  raw(): Uint8Array {
    this.expect(BYTES);
    return this.bytes.subarray(this.value, this.after);
  }

  text(maxLength: number): string {
    const raw = this.raw();
    if (raw.length > maxLength)
      throw new ShardwrightError(
        'E_LIMIT',
        `a text of ${raw.length} bytes at byte ${this.value}; at most ${maxLength} are allowed`,
        {
          hint: 'no name is that long; the file may be damaged',
        },
      );
    try {
      return UTF8.decode(raw);
    } catch {
      throw new ShardwrightError('E_ENCODING', `the text at byte ${this.value} is not UTF-8`, {
        hint: 'the file may be damaged',
      });
    }
  }

  /** A signed 64-bit integer: a number where that is exact. */
  int(): number | bigint {
    this.expect(VARINT);
    return this.intAt(this.value).value;
  }

  /** An integer that must be a plain number, such as an enumeration. */
  small(): number {
    const value = this.int();
    if (typeof value === 'bigint')
      throw this.fail(`the number ${value} is out of range`, this.value);
    return value;
  }

  float(): number {
    this.expect(FIXED32);
    return this.view.getFloat32(this.value, true);
  }

  /** Repeated integers, packed or one by one. */
  ints(into: (number | bigint)[], max: number): void {
    if (this.wire === VARINT) into.push(this.int());
    else {
      this.expect(BYTES);
      for (let at = this.value; at < this.after;) {
        const { value, next } = this.intAt(at);
        into.push(value);
        at = next;
        if (into.length > max) break;
      }
    }
    if (into.length > max) throw this.tooMany(max);
  }

  /** Repeated 32-bit floats, packed or one by one. */
  floats(into: number[], max: number): void {
    if (this.wire === FIXED32) into.push(this.float());
    else {
      this.expect(BYTES);
      if ((this.after - this.value) % 4 !== 0) throw this.fail('packed floats are cut', this.value);
      if (into.length + (this.after - this.value) / 4 > max) throw this.tooMany(max);
      for (let at = this.value; at < this.after; at += 4) into.push(this.view.getFloat32(at, true));
    }
    if (into.length > max) throw this.tooMany(max);
  }

  fail(message: string, at = this.value): ShardwrightError {
    return new ShardwrightError('E_SYNTAX', `${message}, at byte ${at}`, {
      hint:
        'the file may be cut or damaged; `python -c "import onnx; ' +
        'onnx.checker.check_model(FILE)"` checks it',
    });
  }

  private tooMany(max: number): ShardwrightError {
    return new ShardwrightError(
      'E_LIMIT',
      `more than ${max} numbers in a list, at byte ${this.value}`,
      {
        hint: 'the file may be damaged',
      },
    );
  }

  private expect(wire: number): void {
    if (this.wire !== wire)
      throw this.fail(
        `field ${this.field} has wire type ${this.wire}, expected ${wire}`,
        this.value,
      );
  }

  /** Reads a length or key at `pos`. */
  private varint(): number {
    const from = this.pos;
    let value = 0;
    for (let i = 0; i < 8; i++) {
      if (this.pos >= this.end) throw this.fail('a number runs past the end', from);
      const b = itemAt(this.bytes, this.pos++);
      value += (b & 127) * 2 ** (7 * i);
      if (b < 128) {
        if (!Number.isSafeInteger(value)) break;
        return value;
      }
    }
    throw this.fail('a length is too large', from);
  }

  private skipVarint(): void {
    const from = this.pos;
    for (let i = 0; i < 10; i++) {
      if (this.pos >= this.end) throw this.fail('a number runs past the end', from);
      if (itemAt(this.bytes, this.pos++) < 128) return;
    }
    throw this.fail('a number has more than 10 bytes', from);
  }

  private intAt(from: number): { value: number | bigint; next: number } {
    let low = 0;
    let at = from;
    for (let i = 0; i < 7; i++) {
      const b = this.bytes[at++];
      if (b === undefined || at > this.end) throw this.fail('a number runs past the end', from);
      low += (b & 127) * 2 ** (7 * i);
      if (b < 128) return { value: low, next: at };
    }
    let value = BigInt(low);
    for (let i = 7; i < 10; i++) {
      const b = this.bytes[at++];
      if (b === undefined || at > this.end) throw this.fail('a number runs past the end', from);
      value |= BigInt(b & 127) << BigInt(7 * i);
      if (b < 128) {
        const signed = BigInt.asIntN(64, value);
        const small = Number(signed);
        return { value: Number.isSafeInteger(small) ? small : signed, next: at };
      }
    }
    throw this.fail('a number has more than 10 bytes', from);
  }
}

const UTF8 = new TextDecoder('utf-8', { fatal: true });
