/** Formats that a report is written in. */
export const REPORT_FORMATS = ['html', 'md', 'text', 'json', 'csv'] as const;
export type ReportFormat = (typeof REPORT_FORMATS)[number];
