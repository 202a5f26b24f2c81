/** What is shown of a device: its state, and its events. */

import type { Device, LogEntry } from './document';

/** A device's state in a word; null for an application entity that is no device's. */
export function stateOf({
  associated,
  silent,
}: Device): { level: 'good' | 'warn' | 'none'; text: string } | null {
  if (typeof associated !== 'boolean') return null;
  if (silent) return { level: 'warn', text: 'silent' };
  return associated
    ? { level: 'good', text: 'associated' }
    : { level: 'none', text: 'not associated' };
}

/**
 * The events that name a device by its system-id, which its name ends in. That somebody has read its
 * values says nothing of the device.
 */
export function eventsOf({ name }: Device, events: LogEntry[]): LogEntry[] {
  const id = name.replace(/^phd-/, '');
  return events.filter(
    ({ kind, fields, text }) =>
      kind !== 'web-read' && (text.includes(id) || Object.values(fields).includes(id)),
  );
}
