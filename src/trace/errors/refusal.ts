/** Makes errors about traced values, with the place in the user's program and the module path. */

import { type ErrorDetails, ShardwrightError } from '../../errors.ts';

/** The place of a traced call: position in the user's program and module path. */
export interface Place {
  readonly source?: string | undefined;
  readonly path?: string | undefined;
}

/** `examples/mlp.ts:14:7 (layers.0.mlp)`; empty where neither is known. */
function placeText({ source, path }: Place): string {
  const module = path === undefined || path === '' ? '' : `(${path})`;
  return [source ?? '', module].filter((part) => part !== '').join(' ');
}

/**
 * An error about a traced value: the message ends with the place, and the details carry it in
 * parts.
 */
export function refusal(
  code: string,
  message: string,
  place: Place,
  details: ErrorDetails = {},
): ShardwrightError {
  const text = placeText(place);
  const [, file, line, column] = /^(.*):(\d+):(\d+)$/.exec(place.source ?? '') ?? [];
  return new ShardwrightError(code, text === '' ? message : `${message} at ${text}`, {
    ...(file === undefined
      ? {}
      : { file, position: { line: Number(line), column: Number(column) } }),
    ...(place.path === undefined || place.path === '' ? {} : { path: place.path }),
    ...details,
  });
}
