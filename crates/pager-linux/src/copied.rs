//! Copy on write: shared pages and a tenant's own copies at the same addresses.
//!
//! A write to a shared page shows the copies at its addresses from then on, and the policy fills
//! the page's copy with a frame of the writer's own. A mapping of its own for each page would let
//! a guest use up the mappings of the process by writing to every second page. So addresses change
//! over in blocks, of which an attachment has as many as its reservation has mappings for, and 512
//! at the most; within a block each page is still copied only when it is touched.

use crate::attached::Role;
use crate::backend::Linux;
use crate::bits::Bits;
use crate::engine::Engine;
use crate::refusal::Reason;
use crate::span::Span;
use leasehold_pager::PageNumber;

/// Most blocks of an attachment, and so most of the kernel mappings that it takes.
pub(crate) const BLOCKS: u32 = 512;

/// The role of the shared pages of an area of `pages` pages, none of which was written to, in
/// `blocks` blocks at the most.
pub(crate) fn original(copies: u32, pages: u32, blocks: u32) -> Role {
    let block = pages.div_ceil(blocks).next_power_of_two().ilog2();
    Role::Original {
        copies,
        broken: Bits::new(pages.div_ceil(1 << block)),
        block,
    }
}

impl Engine {
    /// A page that was written to, or lies in a block in which one was: it gets a copy.
    pub(crate) fn copy(&mut self, original: u32, page: PageNumber) -> Result<(), Reason> {
        let linux = self.linux();
        let copies = linux.show_copies(original, page)?;
        let (from, to) = (linux.view(original).id, linux.view(copies).id);
        self.pager.copy_on_write(from, page, to, page)?;
        // The policy may have had it mapped; then it is the entry that was missing.
        let linux = self.linux();
        linux.settle();
        if !linux.view(copies).present.get(page) {
            linux.restore(copies, page);
        }
        Ok(())
    }
}

impl Linux {
    /// Shows the copies at the addresses of a page's block; returns the attachment of the copies.
    fn show_copies(&mut self, original: u32, page: PageNumber) -> Result<u32, Reason> {
        let view = self.view(original);
        let end = view.end();
        let Role::Original {
            copies,
            broken,
            block,
        } = &mut view.role
        else {
            unreachable!("only shared pages are copied");
        };
        let (copies, number) = (*copies, page.get() >> *block);
        if broken.put(number, true) {
            return Ok(copies);
        }
        let from = PageNumber::new(number << *block);
        let to = end.min(from.plus(1 << *block));
        view.present.clear(from, to);
        let block = view.pages_at(from, to);
        match self.show(copies, block, from) {
            Ok(()) => Ok(copies),
            Err(error) => {
                // Neither area may be visible without serving its faults: the old state is
                // restored, and the next access tries again.
                if let Role::Original { broken, .. } = &mut self.view(original).role {
                    broken.put(number, false);
                }
                if self.show(original, block, from).is_err() {
                    self.replace(original);
                }
                let errno = rustix::io::Errno::from_io_error(&error);
                Err(Reason::Kernel(errno.unwrap_or(rustix::io::Errno::INVAL)))
            }
        }
    }

    /// Shows the pages of an attachment from `first` on at these of its addresses.
    fn show(&mut self, attached: u32, block: Span, first: PageNumber) -> std::io::Result<()> {
        let view = self.attached[attached as usize].as_ref();
        let view = view.expect("an attachment");
        let memory = self.areas[view.area as usize].as_mut();
        let memory = memory.expect("an area");
        let tracked = memory.is_tracked() || view.is_original();
        block.map(self.file.as_fd(), memory.cached.extent().page(first))?;
        let registered = self.userfault.register(block, tracked);
        if registered.is_err() {
            // Until something else is there, pages that are touched are the kernel's to find.
            memory.cached.has_strays();
        }
        registered
    }
}
