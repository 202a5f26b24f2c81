/** Milliseconds since 1970 of a moment as RFC 3339, or as TS-0004 has it (`20261124T132204,167122`, UTC). */
export function moment(text: string | number): number {
  if (typeof text === 'number') return text;
  const own = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)(?:[,.](\d+))?$/.exec(text);
  if (!own) return Date.parse(text);
  const [, year, month, day, hour, minute, second, part] = own;
  return (
    Date.UTC(+year, +month - 1, +day, +hour, +minute, +second) +
    (part ? Number(`0.${part}`) * 1000 : 0)
  );
}
