// SPDX-License-Identifier: Apache-2.0
//
// The bytes that each token adds to an output, as one table. Both kinds of decoder that MoE
// models use are a plain concatenation of such bytes, so a stream needs no decoder at all.

use serde_json::Value;
use std::collections::HashMap;
use tokenizers::Tokenizer;

pub struct Pieces {
    bytes: Vec<u8>,
    ends: Vec<usize>, // ends[id]: end of the bytes of id
    special: Vec<bool>,
    pub size_max: usize,
    pub strips_first_space: bool,
}

enum Kind {
    Bytes(HashMap<char, u8>), // GPT-2: every byte is written as one printable character
    Sentence,                 // SentencePiece: U+2581 is a space, <0x0A> a byte
}

/// The characters that stand for bytes 0..255, the table of GPT-2's encoder.py.
fn byte_characters() -> HashMap<char, u8> {
    let printable = |b: u32| matches!(b, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut next = 0x100;
    let mut map = HashMap::new();
    for b in 0..256u32 {
        let code = if printable(b) {
            b
        } else {
            next += 1;
            next - 1
        };
        map.insert(char::from_u32(code).expect("below U+0200"), b as u8);
    }
    map
}

fn has_type(decoder: &Value, name: &str) -> bool {
    decoder["type"] == name
        || decoder["decoders"].as_array().is_some_and(|l| l.iter().any(|d| has_type(d, name)))
}

fn byte_token(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if hex.len() == 2 {
        u8::from_str_radix(hex, 16).ok()
    } else {
        None
    }
}

impl Kind {
    fn of(decoder: &Value) -> Result<Kind, String> {
        if has_type(decoder, "ByteLevel") {
            Ok(Kind::Bytes(byte_characters()))
        } else if has_type(decoder, "ByteFallback") || has_type(decoder, "Metaspace") {
            Ok(Kind::Sentence)
        } else {
            Err(format!(
                "decoder {} is not supported; ByteLevel and SentencePiece are",
                decoder["type"]
            ))
        }
    }

    fn bytes(&self, token: &str) -> Vec<u8> {
        match self {
            Kind::Bytes(map) => token
                .chars()
                .map(|c| map.get(&c).copied())
                .collect::<Option<Vec<u8>>>()
                .unwrap_or_else(|| token.as_bytes().to_vec()),
            Kind::Sentence => match byte_token(token) {
                Some(byte) => vec![byte],
                None => token.replace('\u{2581}', " ").into_bytes(),
            },
        }
    }
}

impl Pieces {
    pub fn new(tokenizer: &Tokenizer, decoder: &Value) -> Result<Pieces, String> {
        let kind = Kind::of(decoder)?;
        let vocab = tokenizer.get_vocab(true);
        let count = vocab.values().max().map_or(0, |id| *id as usize + 1);
        if count > 1 << 24 {
            return Err(format!("token id {} is above the limit of 2^24", count - 1));
        }
        let added = tokenizer.get_added_vocabulary();
        let mut pieces = Pieces {
            bytes: vec![],
            ends: Vec::with_capacity(count),
            special: vec![false; count],
            size_max: 0,
            strips_first_space: matches!(kind, Kind::Sentence) && strips(decoder),
        };
        for id in 0..count {
            if let Some(token) = tokenizer.id_to_token(id as u32) {
                let bytes = kind.bytes(&token);
                pieces.special[id] = added.is_special_token(&token);
                pieces.size_max = pieces.size_max.max(bytes.len());
                pieces.bytes.extend(bytes);
            }
            pieces.ends.push(pieces.bytes.len());
        }
        Ok(pieces)
    }

    pub fn count(&self) -> u32 {
        self.ends.len() as u32
    }

    pub fn get(&self, id: u32) -> (&[u8], bool) {
        let id = id as usize;
        match self.ends.get(id) {
            None => (&[], false),
            Some(&end) => {
                let start = if id == 0 { 0 } else { self.ends[id - 1] };
                (&self.bytes[start..end], self.special[id])
            }
        }
    }
}

/// A Strip step, or Metaspace with its prefix, drops the space before the first word.
fn strips(decoder: &Value) -> bool {
    let metaspace = |d: &Value| {
        d["type"] == "Metaspace" && d["prepend_scheme"] != "never" && d["add_prefix_space"] != false
    };
    let strip = |d: &Value| d["type"] == "Strip" && d["start"].as_u64().unwrap_or(0) > 0;
    metaspace(decoder)
        || strip(decoder)
        || decoder["decoders"].as_array().is_some_and(|l| l.iter().any(strips))
}
