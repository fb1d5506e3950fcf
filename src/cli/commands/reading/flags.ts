/** The flags of `inspect`, `trace` and `check`. */

import { ShardwrightError, suggestion } from '../../../errors.ts';
import { type Given, list, required, value } from '../../input/flags/flag.ts';
import { MODEL_FLAGS, SIZE_FLAGS } from '../../input/flags/model-flags.ts';
import { pairOf } from '../../input/flags/read.ts';
import { JSON_FLAG, MESH } from '../../input/flags/shared-flags.ts';

export const INSPECT_COMMAND = { ...MODEL_FLAGS, ...SIZE_FLAGS };
export type InspectOptions = Given<typeof INSPECT_COMMAND>;

export const TRACE_COMMAND = JSON_FLAG;
export type TraceOptions = Given<typeof TRACE_COMMAND>;

export const CHECK_COMMAND = {
  ...MODEL_FLAGS,
  ...SIZE_FLAGS,
  mode: required(
    value('--mode <mode>', 'auto, explicit, strict or manual', async (name, flag) => {
      const { MODES } = await import('../../../local-spmd/modes.ts');
      const mode = MODES.find((known) => known === name);
      if (mode !== undefined) return mode;
      throw new ShardwrightError('E_USAGE', `${flag}: there is no mode '${name}'`, {
        hint: suggestion(name, MODES, 'modes'),
      });
    }),
  ),
  mesh: {
    ...MESH,
    help: 'mesh dims, outermost first, such as dp=2,tp=4; default the mesh that the program names',
  },
  type: list('--type <name=spec>', 'type of an input, such as x=P("dp",None)', pairOf('NAME=SPEC')),
};
export type CheckOptions = Given<typeof CHECK_COMMAND>;
