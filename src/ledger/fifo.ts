/**
 * A queue whose members know their place, so that any of them can leave in constant time.
 * Leases of one time-to-live expire in the order they were renewed: the head is always the next one due.
 */
export interface Node<T> {
  next: T | null;
  previous: T | null;
}

export class Fifo<T extends Node<T>> {
  head: T | null = null;
  #tail: T | null = null;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  push(item: T): void {
    item.previous = this.#tail;
    item.next = null;
    if (this.#tail === null) this.head = item;
    else this.#tail.next = item;
    this.#tail = item;
    this.#length += 1;
  }

  remove(item: T): void {
    if (item.previous === null) this.head = item.next;
    else item.previous.next = item.next;
    if (item.next === null) this.#tail = item.previous;
    else item.next.previous = item.previous;
    item.next = null;
    item.previous = null;
    this.#length -= 1;
  }

  *[Symbol.iterator](): Generator<T> {
    for (let item = this.head; item !== null; item = item.next) yield item;
  }
}
