//! Writing pages out: where a fault happens, or by another thread while what has faulted is suspended.

use super::Linux;
use crate::memory::{Backing, Memory};
use crate::store::{PageBytes, write_all};
use crate::swap_places::NOWHERE;
use crate::transfer::{Turn, Wanted};
use leasehold_pager::{CLUSTER, Held, PAGE, Page, StoreError, Writing};
use rustix::io::Errno;

impl Linux {
    /// Writes a cluster, or begins to.
    pub(super) fn write_cluster(&mut self, cluster: &[Held]) -> Result<Writing, StoreError> {
        if let Some(writing) = self.begin_write(cluster)? {
            return Ok(writing);
        }
        self.transfers = self.transfers.wrapping_add(1);
        self.stage(cluster)?;
        self.write_out(cluster)?;
        for held in cluster {
            let memory = self.memory(held.page.area.index());
            memory.dirty.put(held.page.number, false);
        }
        Ok(Writing::Done)
    }

    /// Has a cluster written by another thread, if the program that needs room can wait for it.
    fn begin_write(&mut self, cluster: &[Held]) -> Result<Option<Writing>, StoreError> {
        let Some(waiting) = self.suspends.and_then(|at| self.fetches.wait_again(at)) else {
            return Ok(None);
        };
        let Some(file) = self.store.as_ref().and_then(|store| store.file()) else {
            return Ok(None);
        };
        let victim = cluster[0].page;
        let owner = self.memory(victim.area.index()).owner;
        let writes = &self.cluster_writes;
        let earlier = writes.of_owner(owner).or_else(|| writes.of_page(victim));
        if let Some(progress) = earlier {
            let turn = Turn::new(progress.clone());
            self.wanted = Some(Wanted::turn(turn, self.fetches.take()));
            return Ok(Some(Writing::Waits));
        }
        if !writes.has_room() {
            return Ok(None);
        }
        let mut held = [cluster[0]; CLUSTER];
        let mut count = 0;
        for &page in cluster {
            if !self.is_leaving(page.page) {
                held[count] = page;
                count += 1;
            }
        }
        let cluster = &held[..count];
        self.stage(cluster)?;
        let Some(places) = self.take_places(count) else {
            return Ok(None);
        };
        let mut entries = Vec::with_capacity(count);
        for (held, place) in cluster.iter().zip(places) {
            self.fetches.written(u64::from(place) * PAGE, 1);
            let memory = self.memory(held.page.area.index());
            memory.dirty.put(held.page.number, false);
            memory.leaving.put(held.page.number);
            entries.push((Some(held.page), place));
        }
        let copies = (0..count).map(|at| PageBytes::copied(self.staging.read(at, at + 1)));
        let write = (self.cluster_writes).begin(owner, entries, copies.collect(), file);
        let kept = self.fetches.take().waiting(waiting);
        self.wanted = Some(Wanted::cluster(write, kept));
        Ok(Some(Writing::Begun))
    }

    /// Takes free places, next to each other if there are any.
    fn take_places(&mut self, pages: usize) -> Option<[u32; CLUSTER]> {
        let mut places = [NOWHERE; CLUSTER];
        if let Some(first) = self.swap_places.take_run(pages) {
            for (place, at) in places.iter_mut().zip(first..first + pages as u32) {
                *place = at;
            }
            return Some(places);
        }
        for at in 0..pages {
            let Some(place) = self.swap_places.take_one() else {
                for &taken in &places[..at] {
                    self.swap_places.give_back(taken);
                }
                return None;
            };
            places[at] = place;
        }
        Some(places)
    }

    fn is_leaving(&self, page: Page) -> bool {
        let memory = self.areas[page.area.index() as usize].as_ref();
        memory.is_some_and(|memory| memory.leaving.has(page.number))
    }

    /// Notes which pages other threads have written out since the last call.
    pub(crate) fn note_written(&mut self) {
        while let Some((entries, is_written)) = self.cluster_writes.take_over() {
            for (page, place) in entries {
                self.note_page_written(page, place, is_written);
            }
        }
    }

    fn note_page_written(&mut self, page: Option<Page>, place: u32, is_written: bool) {
        let memory = page.and_then(|page| self.areas[page.area.index() as usize].as_mut());
        if let (Some(page), Some(memory)) = (page, memory)
            && memory.leaving.take(page.number)
        {
            if is_written && !memory.dirty.get(page.number) {
                return self.put_place(page, place);
            }
            memory.dirty.put(page.number, true);
        }
        self.swap_places.give_back(place);
    }

    /// Writes a cluster to places next to each other if there are any, else each page to its own.
    fn write_out(&mut self, cluster: &[Held]) -> Result<(), StoreError> {
        if cluster.iter().any(|held| {
            let memory = self.areas[held.page.area.index() as usize].as_ref();
            !memory.is_some_and(Memory::is_tracked)
        }) {
            return Err(StoreError);
        }
        let run = (cluster.len() > 1)
            .then(|| self.swap_places.take_run(cluster.len()))
            .flatten();
        if let Some(first) = run {
            let written = self.transfer(first, 0, cluster.len());
            for (at, held) in cluster.iter().enumerate() {
                let place = first + at as u32;
                if written.is_ok() {
                    self.put_place(held.page, place);
                } else {
                    self.swap_places.give_back(place);
                }
            }
            return written;
        }
        for (at, held) in cluster.iter().enumerate() {
            let own = self.memory(held.page.area.index()).place(held.page.number);
            // Each page has a place promised to it, so there is one.
            let place = own
                .or_else(|| self.swap_places.take_one())
                .ok_or(StoreError)?;
            if let Err(failed) = self.transfer(place, at, at + 1) {
                if own.is_none() {
                    self.swap_places.give_back(place);
                }
                return Err(failed);
            }
            self.put_place(held.page, place);
            self.memory(held.page.area.index())
                .dirty
                .put(held.page.number, false);
        }
        Ok(())
    }

    /// Writes staged pages `from .. to` to the places from `first` on.
    fn transfer(&mut self, first: u32, from: usize, to: usize) -> Result<(), StoreError> {
        let store = self.store.as_mut().ok_or(StoreError)?;
        let offset = u64::from(first) * PAGE;
        self.fetches.written(offset, to - from);
        let bytes = self.staging.bytes(from, to);
        write_all(bytes, |done, rest| {
            store.write_at(offset + done as u64, rest)
        })
        .map_err(|_| StoreError)
    }

    /// Records where a page was written out, and frees the place where it was before.
    fn put_place(&mut self, page: Page, place: u32) {
        let memory = self.areas[page.area.index() as usize].as_mut();
        let Some(Memory {
            backing,
            written,
            leaving,
            ..
        }) = memory
        else {
            return;
        };
        // What another thread still writes of it is older.
        leaving.take(page.number);
        if let Backing::Store(places) = backing {
            let before = std::mem::replace(&mut places[page.number], place);
            if before == NOWHERE {
                *written += 1;
            } else if before != place {
                self.swap_places.give_back(before);
            }
        }
    }

    /// Makes writes to a page trap in all mappings.
    fn protect_everywhere(&mut self, page: Page) -> Result<(), Errno> {
        let area = self.areas[page.area.index() as usize].as_ref();
        for &attached in &area.expect("an area").attached {
            let view = self.attached[attached as usize].as_ref();
            let view = view.expect("an attachment");
            if !view.gone && view.present.get(page.number) {
                self.userfault.protect(view.page_at(page.number), true)?;
            }
        }
        Ok(())
    }

    /// Copies the pages of a cluster into the staging area, after writes to them were made to
    /// trap: what is written out is what they hold when they are clean.
    fn stage(&mut self, cluster: &[Held]) -> Result<(), StoreError> {
        for (at, held) in cluster.iter().enumerate() {
            self.protect_everywhere(held.page).map_err(|_| StoreError)?;
            let memory = self.areas[held.page.area.index() as usize].as_ref();
            let memory = memory.expect("an area");
            let into = self.staging.bytes(at, at + 1);
            if memory.unfilled.get(held.page.number) {
                return Err(StoreError);
            }
            if memory.cached.get(held.page.number) {
                memory
                    .cached
                    .load(&self.file, held.page.number, into)
                    .map_err(|_| StoreError)?;
            } else {
                into.fill(0);
            }
        }
        Ok(())
    }
}
