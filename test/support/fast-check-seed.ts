import fc from 'fast-check';

/**
 * Random tests draw the same examples in every run: the same commit gives the same result.
 * `FAST_CHECK_SEED` draws others (a 32-bit whole number, as fast-check prints it); a test that
 * states its own seed keeps it.
 */
const FIXED_SEED = 20260101;

const asked = process.env.FAST_CHECK_SEED ?? '';
const seed = asked === '' ? FIXED_SEED : Number(asked);
if (seed !== (seed | 0))
  throw new Error(`FAST_CHECK_SEED is "${asked}", expected a whole number from -2^31 to 2^31 - 1`);
fc.configureGlobal({ ...fc.readConfigureGlobal(), seed });
