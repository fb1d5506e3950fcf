/**
 * Texts of the package's folder `data` by path, for a page, which has no files. Empty here: what
 * bundles the planner for a page puts the texts in this module's place
 * (`scripts/package-data.mjs`).
 */
export const PACKAGE_DATA: Readonly<Record<string, string>> = {};
