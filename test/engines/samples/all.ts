import { builtinOperators } from '../../../src/ops/builtin.ts';
import { parseCall, type CallText } from '../support/call-text.ts';
import { norms } from './norms.ts';
import { ELSEWHERE, pointwiseSamples } from './pointwise.ts';
import { products } from './products.ts';
import { reductions } from './reductions.ts';
import { shapes } from './shapes.ts';

export const operators = builtinOperators();

/** Every sample call; each record has one at least, but those that need a GPU (see the tests' lists). */
export const samples: readonly CallText[] = [
  ...operators.records
    .filter((r) => r.cls === 'pointwise' && !ELSEWHERE.test(r.name.split('.')[1]))
    .flatMap(pointwiseSamples),
  ...['detach', 'detach_', 'alias', 'lift_fresh'].map((name) => `${name}(x[6,5])`),
  ...products,
  ...norms,
  ...reductions,
  ...shapes,
].map(parseCall);
