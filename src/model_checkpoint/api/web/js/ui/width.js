// Width of an element, rounded so that a scrollbar that comes and goes makes no loop.
import { useState, useLayoutEffect, useRef } from '../../vendor/preact-htm.js';

export function useWidth() {
  const ref = useRef();
  const [width, set] = useState(0);
  useLayoutEffect(() => {
    // before the first frame is drawn, so that it is drawn once
    if (!ref.current) return undefined;
    const watch = new ResizeObserver(([entry]) => set(Math.round(entry.contentRect.width)));
    watch.observe(ref.current);
    set(Math.round(ref.current.clientWidth));
    return () => watch.disconnect();
  }, []);
  return [ref, width];
}
