// SPDX-License-Identifier: Apache-2.0
//
// The C border of worker/text: text.h is its manual. Every function here only converts
// arguments, catches panics and fills struct err; the work is in model.rs, chat.rs, pieces.rs.

mod chat;
mod model;
mod pieces;

use model::Text;
use std::ffi::{c_char, c_int, CStr};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;

pub const REJECT: c_int = 2; // ERR_REJECT of common/err.h
pub const FATAL: c_int = 3; // ERR_FATAL

#[repr(C)]
pub struct Err {
    _opaque: [u8; 0],
}

extern "C" {
    fn err_set(err: *mut Err, kind: c_int, format: *const c_char, ...) -> bool;
}

#[repr(C)]
pub struct TextIds {
    ids: *mut i32,
    count: usize,
}

#[repr(C)]
pub struct TextPiece {
    bytes: *const u8,
    size: usize,
    special: bool,
}

/// Run `work`; a failure or a panic fills `err` and gives false.
fn guard<F>(err: *mut Err, kind: c_int, work: F) -> bool
where
    F: FnOnce() -> Result<(), String>,
{
    let message = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return true,
        Ok(Err(message)) => message,
        Err(_) => "the text library failed on this input".to_string(),
    };
    // struct err holds 239 bytes: cut at a character, and no NUL inside.
    let mut end = message.len().min(239);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let mut line: Vec<u8> =
        message[..end].bytes().map(|b| if b < 0x20 { b' ' } else { b }).collect();
    line.push(0);
    unsafe { err_set(err, kind, c"%s".as_ptr(), line.as_ptr() as *const c_char) }
}

unsafe fn utf8<'a>(bytes: *const c_char, size: usize) -> Result<&'a str, String> {
    let slice: &[u8] =
        if size == 0 { &[] } else { std::slice::from_raw_parts(bytes as *const u8, size) };
    std::str::from_utf8(slice)
        .map_err(|e| format!("the text is not UTF-8 at byte {}", e.valid_up_to()))
}

unsafe fn give_ids(out: *mut TextIds, ids: Vec<u32>) {
    let ids = ids.into_boxed_slice();
    (*out).count = ids.len();
    (*out).ids = Box::into_raw(ids) as *mut i32;
}

#[no_mangle]
pub unsafe extern "C" fn text_open(dir: *const c_char, out: *mut *mut Text, err: *mut Err) -> bool {
    guard(err, REJECT, || {
        let dir = CStr::from_ptr(dir).to_str().map_err(|_| "the model path is not UTF-8")?;
        *out = Box::into_raw(Box::new(Text::open(Path::new(dir))?));
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn text_close(text: *mut Text) {
    if !text.is_null() {
        drop(Box::from_raw(text));
    }
}

#[no_mangle]
pub unsafe extern "C" fn text_encode(
    text: *const Text,
    prompt: *const c_char,
    size: usize,
    out: *mut TextIds,
    err: *mut Err,
) -> bool {
    guard(err, REJECT, || {
        give_ids(out, (*text).encode_prompt(utf8(prompt, size)?)?);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn text_chat(
    text: *const Text,
    messages: *const c_char,
    size: usize,
    now_s: i64,
    out: *mut TextIds,
    err: *mut Err,
) -> bool {
    guard(err, REJECT, || {
        give_ids(out, (*text).encode_chat(utf8(messages, size)?, now_s)?);
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn text_ids_free(ids: *mut TextIds) {
    if !(*ids).ids.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(
            (*ids).ids as *mut u32,
            (*ids).count,
        )));
    }
    (*ids).ids = std::ptr::null_mut();
    (*ids).count = 0;
}

#[no_mangle]
pub unsafe extern "C" fn text_decode(
    text: *const Text,
    ids: *const i32,
    count: usize,
    out: *mut u8,
    capacity: usize,
    size: *mut usize,
    err: *mut Err,
) -> bool {
    guard(err, REJECT, || {
        let ids =
            if count == 0 { &[] } else { std::slice::from_raw_parts(ids as *const u32, count) };
        let decoded = (*text).decode(ids)?;
        if decoded.len() > capacity {
            return Err(format!(
                "the text has {} bytes; the buffer holds {capacity}",
                decoded.len()
            ));
        }
        std::ptr::copy_nonoverlapping(decoded.as_ptr(), out, decoded.len());
        *size = decoded.len();
        Ok(())
    })
}

#[no_mangle]
pub unsafe extern "C" fn text_piece(text: *const Text, id: i32) -> TextPiece {
    let (bytes, special) = (*text).pieces.get(id as u32); // a negative id is no id, too
    TextPiece { bytes: bytes.as_ptr(), size: bytes.len(), special }
}

#[no_mangle]
pub unsafe extern "C" fn text_piece_size_max(text: *const Text) -> usize {
    (*text).pieces.size_max
}

#[no_mangle]
pub unsafe extern "C" fn text_strips_first_space(text: *const Text) -> bool {
    (*text).pieces.strips_first_space
}

#[no_mangle]
pub unsafe extern "C" fn text_vocab_count(text: *const Text) -> i32 {
    (*text).pieces.count() as i32
}

#[no_mangle]
pub unsafe extern "C" fn text_eos_ids(text: *const Text, count: *mut usize) -> *const i32 {
    *count = (*text).eos_ids.len();
    (*text).eos_ids.as_ptr() as *const i32
}
