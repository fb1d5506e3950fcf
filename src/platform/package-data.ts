/**
 * Texts of the package's folder `data` by path, so that they travel with a bundle of the library
 * and with a page, which has no files. Empty in the sources, where they are read from the folder:
 * the build puts the texts in this module's place (`scripts/package-data.mjs`).
 */
export const PACKAGE_DATA: Readonly<Record<string, string>> = {};
