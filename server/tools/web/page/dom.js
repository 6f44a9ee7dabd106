// SPDX-License-Identifier: Apache-2.0
// Creates and updates elements. Text is only ever inserted as text: nothing on this page parses
// markup.

const kSvg = 'http://www.w3.org/2000/svg';

// element('td', {class: 'number'}, 'text', another element, ...)
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function svg(name, attributes = {}) {
  const made = document.createElementNS(kSvg, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// A user-chosen name. The element isolates its text direction.
export function named(text) { return element('bdi', {class: 'name', title: text}, text); }

// Writes only differences, so that selections and screen readers are not disturbed.
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

export function setAttribute(target, name, value) {
  if (target.getAttribute(name) !== value) target.setAttribute(name, value);
}

// Synchronizes the children of `parent` with `items`, in their order. Elements are reused by key.
export function keyed(parent, views, items, keyOf, make) {
  const seen = new Set();
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    seen.add(key);
    if (!views.has(key)) views.set(key, make(item));
    const view = views.get(key);
    if (view.root === place) {
      place = place.nextElementSibling;
    } else {
      parent.insertBefore(view.root, place);
    }
    view.update(item);
  }
  for (const [key, view] of views) {
    if (seen.has(key)) continue;
    view.root.remove();
    views.delete(key);
  }
}
