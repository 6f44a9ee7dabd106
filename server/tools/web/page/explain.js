// SPDX-License-Identifier: Apache-2.0
// Explains why a client's slowest request took as long as it did.

import {element, named} from './dom.js';
import {bytes, microseconds, number} from './format.js';
import {waterfall} from './waterfall.js';

const kParts = [
  {key: 'before_us', of: 'before', words: 'in the client’s own queue: from its arrival, as reported by the client, until the server began it'},
  {key: 'waited_us', of: 'waited', words: 'waiting for the device, with commands ready'},
  {key: 'on_device_us', of: 'device', words: 'on the device'},
  {key: 'host_us', of: 'own', words: 'with nothing ready: the client’s own time'},
];

function who(told) {
  if (told.name === undefined) return element('span', {}, `client ${told.client}, which has left`);
  return element('span', {}, named(told.name), ` (${told.class})`);
}

// Draws the parts side by side, and marks the latency target.
function sum(told) {
  const whole = Math.max(told.latency_us, told.latency_target_us ?? 0) || 1;
  const bar = element('div', {class: 'sum', 'aria-hidden': 'true', 'data-class': told.class ?? ''});
  for (const {key, of} of kParts) {
    const part = element('span', {'data-part': of});
    part.style.width = `${(100 * Math.max(0, told[key] ?? 0) / whole).toFixed(2)}%`;
    bar.append(part);
  }
  if (told.latency_target_us !== undefined) {
    const mark = element('span', {class: 'target-mark'});
    mark.style.left = `${(100 * told.latency_target_us / whole).toFixed(2)}%`;
    bar.append(mark);
  }
  return bar;
}

function parts(told) {
  const list = element('ul', {class: 'parts', 'data-class': told.class ?? ''});
  for (const {key, of, words} of kParts) {
    list.append(element('li', {}, element('span', {class: 'chip', 'data-part': of}), element('b', {}, microseconds(told[key])), ' ', words));
  }
  return list;
}

function wait(told) {
  const behind = told.longest_wait.behind;
  const text = element('p', {}, element('b', {}, microseconds(told.longest_wait.us)), ' ');
  if (!behind) {
    text.append('not caused by a command of another client that has left the device');
    return text;
  }
  text.append('behind ', behind.what ? named(behind.what) : 'a command', ' of ', who(behind),
    `: ${microseconds(behind.on_device_us)} on the device, predicted ${microseconds(behind.predicted_us)}. It ${behind.cut}`,
    behind.stop_latency_us === undefined ? '.' : `, which took ${microseconds(behind.stop_latency_us)}.`);
  return text;
}

function meanwhile(told) {
  const text = element('p');
  for (const other of told.others ?? []) {
    if (text.childNodes.length > 0) text.append(', ');
    text.append(who(other), ` had ${microseconds(other.device_time_us)}`);
  }
  return text.childNodes.length > 0 ? text : element('p', {}, 'No other client was charged for the device.');
}

// Describes the request's time on the device that was not charged, as gpusharedctl does.
function uncharged(told) {
  const rest = Math.max(0, told.on_device_us - told.device_time_us);
  const stolen = Math.min(told.host_steal_us ?? 0, rest);
  const words = [];
  if (stolen >= 1) words.push(`${microseconds(stolen)} the machine ran other programs (host steal)`);
  if (rest - stolen >= 1) words.push(`${microseconds(rest - stolen)} other clients ran at the same time`);
  return words.join('; ');
}

function facts(told) {
  const list = element('dl', {class: 'answers'});
  const add = (question, answer) => list.append(element('dt', {}, question), element('dd', {}, answer));
  if (told.longest_wait) add('Its longest wait', wait(told));
  if (told.throttled_us !== undefined) {
    add('Its cap', `It waited ${microseconds(told.throttled_us)} for its max_share of ${told.max_share_percent} %.`);
  }
  if (told.memory) {
    const out = told.memory.swapped_out;
    const room = out ? [`: ${bytes(told.memory.swapped_out_bytes)} of `, who(out), ' swapped out'] : [];
    add('Its memory', element('p', {}, `It waited ${microseconds(told.memory.waited_us)} for memory`, ...room, '.'));
  }
  if (told.longest_command) {
    add('Its longest command', element('p', {}, named(told.longest_command.what), `: ${microseconds(told.longest_command.us)}`));
  }
  add('Its commands', `${number(told.commands)}, charged ${microseconds(told.device_time_us)}, stopped ${number(told.stops)} times`);
  const rest = uncharged(told);
  if (rest) add('Not charged', rest);
  add('Meanwhile', meanwhile(told));
  return list;
}

function verdict(told) {
  const words = element('p', {class: 'verdict'}, 
    told.open ? `Request ${told.request} has not ended: so far it took ` : `Request ${told.request} took `, element('b', {}, microseconds(told.latency_us)));
  if (told.latency_target_us !== undefined) {
    words.append(`; target ${microseconds(told.latency_target_us)}`);
    if (told.target_met !== undefined) words.append(': ', element('b', {class: told.target_met ? 'good' : 'bad'}, told.target_met ? 'met' : 'missed'));
  }
  words.append(told.failed ? '; its stream failed.' : '.');
  return words;
}

export class Explanation {
  constructor(dialog) {
    this.dialog = dialog;
    this.title = dialog.querySelector('h2');
    this.body = dialog.querySelector('#explain-body');
    this.asked = 0;
    dialog.addEventListener('click', (event) => {
      if (event.target === dialog) dialog.close();  // A click outside of its content.
    });
  }

  async show(client) {
    const asked = ++this.asked;
    this.title.replaceChildren('Slowest request of ', named(client.name ?? ''));
    this.body.replaceChildren(element('p', {class: 'hint'}, 'Asking the server …'));
    if (!this.dialog.open) this.dialog.showModal();
    let content;
    try {
      const answer = await fetch(`/api/explain?client=${encodeURIComponent(client.client)}`);
      if (!answer.ok) throw new Error(await answer.text());
      const told = await answer.json();
      content = [verdict(told), sum(told), parts(told), facts(told), ...waterfall(told)];
      if (told.is_cut) content.push(element('p', {class: 'hint'}, 'The server no longer has all records: commands are only those near the end.'));
      content.push(element('p', {class: 'hint'}, told.open ? 'None of its last 64 requests took longer.' : 'The slowest of its last 64 requests.'));
    } catch (error) {
      content = [element('p', {class: 'trouble'}, error.message)];
    }
    if (asked === this.asked) this.body.replaceChildren(...content);
  }
}
