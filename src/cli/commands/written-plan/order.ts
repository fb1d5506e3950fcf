/**
 * The flags `--order` and `--bucket` of `export` and `doctor`, which choose the order of the calls
 * in the written program.
 */
import type { OrderOptions } from '../../../backend/target.ts';
import { defined } from '../../../defined.ts';
import type { ExportOptions } from './flags.ts';

export function orderOf({ order, bucket }: Pick<ExportOptions, 'order' | 'bucket'>): OrderOptions {
  return {
    ...defined({ order, bucketBytes: bucket }),
  };
}
