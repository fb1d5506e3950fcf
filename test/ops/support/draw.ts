import { build, type NDArray, random } from './arrays.ts';
import type { TensorArg } from './calls.ts';

/**
 * Values for a tensor argument by its `init`: positive, integers below `hi`, distinct integers,
 * bools, or plain numbers.
 */
export function draw(arg: TensorArg, seed: number): NDArray {
  const next = random(seed);
  const hi = arg.hi ?? 2;
  if (arg.init === 'perm') {
    const left = Array.from({ length: hi }, (_, i) => i);
    return build(arg.t, () => left.splice(Math.floor(next() * left.length), 1)[0]);
  }
  const value = (): number => {
    const u = next();
    switch (arg.init) {
      case 'int':
        return Math.floor(u * hi);
      case 'signed':
        return Math.floor(u * 2 * hi) - hi;
      case 'bool':
        return u < 0.5 ? 0 : 1;
      case 'pos':
        return 0.5 + u;
      case 'lse':
        return 3 + u;
      case 'fix':
        return 7;
      default:
        return 4 * u - 2;
    }
  };
  return build(arg.t, value);
}
