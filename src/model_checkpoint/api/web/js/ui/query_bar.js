// The query language, as typed. The server reads it; this bar shows what it said, where, and what was meant.
import { html, useState, useEffect } from '../../vendor/preact-htm.js';
import { Icon } from './icons.js';
import { Button } from './button.js';

const REST = 250; // ms without a key before the server is asked

// The suggestion is either the whole query as it should be, or the one word that should stand there.
export function corrected(text, { at, length, suggestion }) {
  if (!suggestion) return null;
  if (at == null || suggestion.length > text.length + 20 || suggestion.includes(' ')) return suggestion;
  return text.slice(0, at) + suggestion + text.slice(at + length);
}

const Wrong = ({ text, told, use }) => {
  const better = corrected(text, told);
  const { at, length } = told;
  return html`<div class="hint bad" role="alert">
    ${told.error} ${better && html`<button class="btn sm" type="button" onClick=${() => use(better)}>Use ${better}</button>`}
    ${
      at != null &&
      html`<div class="where mono" aria-hidden="true">
      ${text.slice(0, at)}<mark>${text.slice(at, at + length) || ' '}</mark>${text.slice(at + length)}
    </div>`
    }
  </div>`;
};

export function QueryBar({ query, onChange, told, fields = [] }) {
  const [text, set] = useState(query);
  const [focused, setFocused] = useState(false);
  useEffect(() => set(query), [query]);
  useEffect(() => {
    const timer = setTimeout(() => text !== query && onChange(text), REST);
    return () => clearTimeout(timer);
  }, [text]);
  const use = (next) => {
    set(next);
    onChange(next);
  };
  const field = (word) => (event) => {
    event.preventDefault(); // keeps the focus in the field
    set((old) => (old ? old.trimEnd() + ' ' : '') + word);
  };
  return html`<div class="query" role="search">
    <${Icon} name="search" />
    <input
      class=${'input' + (told ? ' bad-input' : '')}
      value=${text}
      spellcheck="false"
      autocomplete="off"
      aria-label="Filter runs"
      aria-invalid=${String(!!told)}
      placeholder="val_loss < 2.8 tag:baseline"
      onInput=${(event) => set(event.target.value)}
      onFocus=${() => setFocused(true)}
      onBlur=${() => setTimeout(() => setFocused(false), 150)}
      onKeyDown=${(event) => event.key === 'Escape' && event.target.blur()}
    />
    ${text && html`<${Button} look="ghost sm icon clear" icon="x" label="Clear the filter" onClick=${() => use('')} />`}
    ${told && html`<${Wrong} text=${query} told=${told} use=${use} />`}
    ${
      focused &&
      !text &&
      fields.length > 0 &&
      html`<div class="menu left" role="group" aria-label="Fields">
      <div class="head">Fields, joined by AND</div>
      <div class="row wrap fields">
        ${fields.map((word) => html`<button type="button" class="chip" onMouseDown=${field(word)}>${word}</button>`)}
      </div>
    </div>`
    }
  </div>`;
}
