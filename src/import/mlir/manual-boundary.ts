/**
 * The boundary of a manual region: shardings of what crosses it, and the mesh axes that are the
 * program's own inside.
 */

import type { Arg } from '../../graph/types.ts';
import type { LoweringContext } from './body-scope.ts';
import type { MlirType, Operation, Region } from './syntax/syntax.ts';
import { typeName } from './syntax/types.ts';

/**
 * Keywords of `sdy.manual_computation`. @throws E_TYPE where a local type is not the part that the
 * sharding gives a device
 */
export function manualKeywords(
  operation: Operation,
  region: Region,
  context: LoweringContext,
): Record<string, Arg> {
  const manual = manualAxes(operation, context);
  const returned = region.operations[region.operations.length - 1] as Operation | undefined;
  const inside = region.args.map(({ type }) => type);
  return {
    in_shardings: boundary(
      operation,
      'in_shardings',
      operation.operandTypes,
      inside,
      manual,
      context,
    ),
    out_shardings: boundary(
      operation,
      'out_shardings',
      operation.resultTypes,
      returned?.operandTypes ?? [],
      manual,
      context,
    ),
    manual_axes: manual,
  };
}

/** Named by Shardy; GSPMD's string says which of the axes that all strings have in common. */
function manualAxes(operation: Operation, { shardings, values }: LoweringContext): string[] {
  const axes = operation.attributes.get('manual_axes');
  if (axes?.kind === 'string') return shardings?.manualAxes(axes.value, operation.at) ?? [];
  return axes === undefined ? [] : values.strings(axes, operation.at);
}

function boundary(
  operation: Operation,
  key: 'in_shardings' | 'out_shardings',
  types: readonly MlirType[],
  local: readonly MlirType[],
  manual: readonly string[],
  { shardings, reader }: LoweringContext,
): Arg[] {
  if (shardings === undefined) return types.map(() => null);
  const stated = shardings.list(operation.attributes.get(key), types, operation.at);
  return types.map((type, i) => {
    const one = stated[i];
    const own = local[i] as MlirType | undefined;
    if (one === undefined) return null;
    if (type.kind === 'tensor' && own?.kind === 'tensor') {
      const sizes = shardings.localSizes(one, type.shape, manual);
      if (sizes.length !== own.shape.length || sizes.some((size, d) => size !== own.shape[d]))
        throw reader.error(
          'E_TYPE',
          `${key} ${i}: ${one.sharding} of ${typeName(type)} leaves [${sizes.join(', ')}] to ` +
            `a device, the region has ${typeName(own)}`,
          operation.at,
          'correct the local type or the sharding',
        );
    }
    return one.sharding;
  });
}
