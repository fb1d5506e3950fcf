import { builtinOperators } from '../../../src/ops/builtin.ts';
import type { CallText } from '../../../src/ops/samples/call-text.ts';
import { torchSamples } from '../../../src/ops/samples/table.ts';

export const operators = builtinOperators();

/** Every sample call that PyTorch can run on a CPU; each ATen and prims record has one at least. */
export const samples: readonly CallText[] = torchSamples(operators);
