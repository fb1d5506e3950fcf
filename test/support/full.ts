/** True in `npm run test:full`, which takes every case where `npm test` takes some. */
export const FULL = process.env.SHARDWRIGHT_FULL === '1';
