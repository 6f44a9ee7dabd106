// SPDX-License-Identifier: Apache-2.0
// Activity during a request, one row per interval: its waits, and which client used the device.
// Rows of other clients explain why their work was or was not preempted.

import {element, named} from './dom.js';
import {microseconds, number} from './format.js';

// Limit of the start of a bar, in percent, because short bars have a minimum width.
const kLastPlace = 99.5;
const kLegend = [['wait', 'it waits'], ['own', 'it has the device'], ['other', 'others have it']];

function label(row) {
  const text = element('p', {class: 'fall-who'});
  if (row.kind === 'wait') text.append('waits');
  if (row.kind === 'other') text.append(named(row.name ?? `client ${row.client} (left)`), ' ');
  if (row.kind !== 'wait') text.append(element('span', {class: 'what'}, row.what ? named(row.what) : 'a command'));
  return text;
}

// The time from the start of the request to its end, and the row's part of it.
function track(row, wholeUs) {
  const place = (us) => Math.min(100, Math.max(0, 100 * us / wholeUs));
  const bar = element('span', {class: 'fall-bar'});
  bar.style.left = `${Math.min(place(row.from_us), kLastPlace).toFixed(2)}%`;
  bar.style.width = `${(place(row.to_us) - place(row.from_us)).toFixed(2)}%`;
  const line = element('div', {class: 'fall-track', 'aria-hidden': 'true'}, bar);
  if (row.stop_asked_us === undefined) return line;
  const mark = element('span', {class: 'stop-mark'});
  mark.style.left = `${place(row.stop_asked_us).toFixed(2)}%`;
  line.append(mark);
  return line;
}

function why(row) {
  if (row.kind !== 'other' || !row.cut) return [];
  const took = row.stop_latency_us === undefined ? '' : `, which took ${microseconds(row.stop_latency_us)}`;
  return [element('p', {class: 'fall-why'}, `It ${row.cut}${took}.`)];
}

// Describes the row's position on the track in words.
function when(row) {
  const begin = row.from_us < 0 ? `${microseconds(-row.from_us)} before it was begun` : `${microseconds(row.from_us)} after it was begun`;
  return `from ${begin}, for ${microseconds(row.to_us - row.from_us)}`;
}

function rowView(row, wholeUs) {
  return element('li', {'data-kind': row.kind, 'data-class': row.class ?? '', title: when(row)},
    label(row), track(row, wholeUs), element('p', {class: 'fall-time'}, microseconds(row.to_us - row.from_us)), ...why(row));
}

function legend(hasStops) {
  const list = element('ul', {class: 'fall-legend', 'aria-hidden': 'true'});
  for (const [kind, words] of kLegend) list.append(element('li', {'data-kind': kind}, element('span', {class: 'chip'}), words));
  if (hasStops) list.append(element('li', {}, element('span', {class: 'stop-mark'}), 'told to stop'));
  return list;
}

function rest(told) {
  const left = told.waterfall_rest ?? {}, words = [];
  if (left.commands > 0) words.push(`${number(left.commands)} shorter commands, ${microseconds(left.on_device_us)} in all`);
  if (left.waits > 0) words.push(`${number(left.waits)} shorter waits, ${microseconds(left.waited_us)} in all`);
  return words.length === 0 ? [] : [element('p', {class: 'hint'}, `And ${words.join('; ')}.`)];
}

// Returns nothing if the server reported no waterfall.
export function waterfall(told) {
  const rows = Array.isArray(told.waterfall) ? told.waterfall : [];
  const wholeUs = told.latency_us - (told.before_us ?? 0);
  if (rows.length === 0 || !(wholeUs > 0)) return [];
  return [element('section', {class: 'fall', 'data-class': told.class ?? ''},
    element('h3', {}, `Since the server began it, ${microseconds(wholeUs)}`),
    legend(rows.some((row) => row.stop_asked_us !== undefined)),
    element('ol', {}, ...rows.map((row) => rowView(row, wholeUs))), ...rest(told))];
}
