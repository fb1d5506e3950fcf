/** `--devices 16xH100`: a number of devices and the cluster that they are of, in one flag. */

import { ShardwrightError } from '../../../errors.ts';
import type { Flags } from './flag.ts';

type Texts = Readonly<Record<string, string | boolean | readonly string[] | undefined>>;

/** `16xH100`, `8xRTX 4090`, `8x4090`. */
const NAMED = /^\s*(\d+)\s*[x*]\s*((?:(?:nvidia|geforce|rtx) )*(?:[a-z][\w.-]*|\d{4}))\s*$/i;

/**
 * The texts of a command line with `16xH100` taken apart into `--devices 16` and `--cluster H100`.
 *
 * @param isDefault the devices are a default: a cluster that is named goes before theirs
 * @throws E_USAGE where a cluster is named, too
 */
export function withDevicesOf(flags: Flags, texts: Texts, isDefault = false): Texts {
  const { devices, cluster } = texts;
  if (typeof devices !== 'string' || flags['cluster'] === undefined) return texts;
  const [, count, name] = NAMED.exec(devices) ?? [];
  if (count === undefined || name === undefined) return texts;
  const named = typeof cluster === 'string' || (Array.isArray(cluster) && cluster.length > 0);
  if (named && isDefault) return { ...texts, devices: count };
  if (named && String(cluster) !== name)
    throw new ShardwrightError(
      'E_USAGE',
      `--devices ${devices} names a cluster, and --cluster ${String(cluster)} another`,
      { hint: `leave one out: --devices ${count}, or no --cluster.` },
    );
  return { ...texts, devices: count, cluster: flags['cluster'].isList === true ? [name] : name };
}
