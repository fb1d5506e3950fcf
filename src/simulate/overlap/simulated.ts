/** The rules of the simulation as the bound on the overlapped step holds them: launches, buckets, and bins of kernels. */

import { LAUNCH_SECONDS } from '../timeline/from-plan.ts';
import { DEFAULT_BUCKET_BYTES } from '../timeline/simulate.ts';

/**
 * Seconds before every kernel and the largest bucket of `simulate`. A packing tells few bins of kernels apart: prices differ from bin to
 * bin, so that many take longer, and the bound of one problem is no better with more.
 */
export const SIMULATED = { launchSeconds: LAUNCH_SECONDS, bucketBytes: DEFAULT_BUCKET_BYTES, bins: 4 } as const;
