// SPDX-License-Identifier: Apache-2.0
//
// Chat templates. A template works on user text with any string operation (trim, split, in), so
// user text cannot be wrapped or replaced while it renders. Instead one private "guard" character
// is put into every control token that a user spelled out, which keeps the tokenizer from seeing
// it; model.rs takes the guards out again once the true control tokens are found.

use aho_corasick::{AhoCorasick, MatchKind};
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use tokenizers::Tokenizer;

pub struct Chat {
    env: Environment<'static>,
    tokens: BTreeMap<String, String>, // bos_token and the like, as the template names them
    controls: Vec<String>,
    finder: AhoCorasick,
    guards_used: HashSet<char>, // by the template itself
    call_objects: bool,         // it prints the arguments of calls as JSON
}

/// Where guards come from: the end of plane 16, which no encoding of text uses.
const GUARDS: std::ops::RangeInclusive<char> = '\u{10F000}'..='\u{10FFFD}';

/// Templates cut the reasoning out of earlier answers by these; they steer nothing else.
const ASSISTANT_MAY_SAY: [&str; 2] = ["<think>", "</think>"];

/// Some tokenizers hold runs of spaces or plain words as added tokens; those are text. Control
/// tokens are marked special, or (DeepSeek's <|User|>, not marked) start with a bracket.
fn is_control(content: &str, special: bool) -> bool {
    content.chars().count() > 1 && (special || content.starts_with(['<', '[', '|', '\u{FF5C}']))
}

/// `{% generation %}` marks answers for training; it prints nothing.
fn without_generation_tags(source: &str) -> String {
    let mut source = source.to_string();
    for (tag, plain) in [("generation", "if true"), ("endgeneration", "endif")] {
        for (open, close) in [("{%", "%}"), ("{%-", "%}"), ("{%", "-%}"), ("{%-", "-%}")] {
            source = source
                .replace(&format!("{open} {tag} {close}"), &format!("{open} {plain} {close}"));
        }
    }
    source
}

/// json.dumps(value, ensure_ascii=False), which templates are written for.
struct PythonJson;

impl serde_json::ser::Formatter for PythonJson {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first {
            Ok(())
        } else {
            w.write_all(b", ")
        }
    }
    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first {
            Ok(())
        } else {
            w.write_all(b", ")
        }
    }
    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, w: &mut W) -> std::io::Result<()> {
        w.write_all(b": ")
    }
}

fn tojson(value: Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let mut out = vec![];
    let spaces = " ".repeat(indent.unwrap_or(0).min(16));
    let done = if indent.is_some() {
        let pretty = serde_json::ser::PrettyFormatter::with_indent(spaces.as_bytes());
        value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, pretty))
    } else {
        value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, PythonJson))
    };
    done.map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string()))?;
    Ok(String::from_utf8(out).expect("serde_json writes UTF-8"))
}

fn raise_exception(message: String) -> Result<String, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// strftime of the request's time, in UTC: workers in different zones must agree.
fn strftime(now_s: i64, format: &str) -> Result<String, Error> {
    let bad = || Error::new(ErrorKind::InvalidOperation, "strftime_now: bad format");
    let format = std::ffi::CString::new(format).map_err(|_| bad())?;
    let mut out = [0u8; 256];
    let size = unsafe {
        let time = now_s as libc::time_t;
        let mut parts: libc::tm = std::mem::zeroed();
        if libc::gmtime_r(&time, &mut parts).is_null() {
            return Err(bad());
        }
        libc::strftime(out.as_mut_ptr().cast(), out.len(), format.as_ptr(), &parts)
    };
    String::from_utf8(out[..size].to_vec()).map_err(|_| bad())
}

impl Chat {
    pub fn new(
        source: String,
        config: &serde_json::Value,
        tokenizer: &Tokenizer,
    ) -> Result<Chat, String> {
        let mut env = Environment::new();
        env.set_trim_blocks(true);
        env.set_lstrip_blocks(true);
        env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        env.add_filter("tojson", tojson);
        env.add_function("raise_exception", raise_exception);
        let call_objects = source.replace(' ', "").contains("arguments|tojson");
        let guards_used = source.chars().filter(|c| GUARDS.contains(c)).collect();
        env.add_template_owned("chat", without_generation_tags(&source))
            .map_err(|e| e.to_string())?;

        let mut tokens = BTreeMap::new();
        for key in ["bos_token", "eos_token", "unk_token", "pad_token"] {
            let value = &config[key];
            if let Some(token) = value.as_str().or_else(|| value["content"].as_str()) {
                tokens.insert(key.to_string(), token.to_string());
            }
        }
        let controls: Vec<String> = tokenizer
            .get_added_tokens_decoder()
            .into_values()
            .filter(|t| is_control(&t.content, t.special))
            .map(|t| t.content)
            .collect();
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(&controls)
            .map_err(|e| e.to_string())?;
        Ok(Chat { env, tokens, controls, finder, guards_used, call_objects })
    }

    /// The rendered conversation and the guard character in it.
    pub fn render(&self, messages: &str, now_s: i64) -> Result<(String, char), String> {
        let mut messages: serde_json::Value =
            serde_json::from_str(messages).map_err(|e| format!("messages: {e}"))?;
        let mut used = self.guards_used.clone();
        collect_guards(&messages, &mut used);
        let guard = GUARDS
            .into_iter()
            .find(|c| !used.contains(c))
            .ok_or("messages use every private character from U+10F000 to U+10FFFD")?;
        for message in messages.as_array_mut().into_iter().flatten() {
            let assistant = message["role"] == "assistant";
            if self.call_objects {
                parse_arguments(message);
            }
            for (key, value) in message.as_object_mut().into_iter().flatten() {
                if key != "role" {
                    self.protect_all(value, guard, assistant);
                }
            }
        }
        let context = minijinja::context! {
            messages => Value::from_serialize(&messages),
            add_generation_prompt => true,
            tools => Value::from(()),
            documents => Value::from(()),
            strftime_now => Value::from_function(move |format: String| strftime(now_s, &format)),
            ..Value::from_serialize(&self.tokens)
        };
        let template = self.env.get_template("chat").map_err(|e| e.to_string())?;
        let text = template.render(context).map_err(|e| {
            format!(
                "the chat template refuses the messages: {}",
                e.detail().unwrap_or(&e.to_string())
            )
        })?;
        Ok((text, guard))
    }

    fn protect_all(&self, value: &mut serde_json::Value, guard: char, assistant: bool) {
        match value {
            serde_json::Value::String(s) => *s = self.protect(s, guard, assistant),
            serde_json::Value::Array(list) => {
                list.iter_mut().for_each(|v| self.protect_all(v, guard, assistant));
            }
            serde_json::Value::Object(map) => {
                map.values_mut().for_each(|v| self.protect_all(v, guard, assistant));
            }
            _ => {}
        }
    }

    /// A guard after the first character of every control token in `s`, and at an end of `s` that
    /// could become a control token together with what the template puts beside it.
    fn protect(&self, s: &str, guard: char, assistant: bool) -> String {
        let mut cuts = HashSet::new();
        for found in self.finder.find_overlapping_iter(s) {
            let token = &s[found.start()..found.end()];
            if !(assistant && ASSISTANT_MAY_SAY.contains(&token)) {
                let first = token.chars().next().map_or(0, char::len_utf8);
                cuts.insert(found.start() + first);
            }
        }
        for token in &self.controls {
            for (at, _) in token.char_indices().skip(1) {
                if s.ends_with(&token[..at]) {
                    cuts.insert(s.len());
                }
                if s.starts_with(&token[at..]) {
                    cuts.insert(0);
                }
            }
        }
        let mut cuts: Vec<usize> = cuts.into_iter().collect();
        cuts.sort_unstable();
        let mut out = String::with_capacity(s.len() + cuts.len() * guard.len_utf8());
        let mut from = 0;
        for cut in cuts {
            out.push_str(&s[from..cut]);
            out.push(guard);
            from = cut;
        }
        out.push_str(&s[from..]);
        out
    }
}

/// OpenAI sends the arguments of a call as JSON in a string. Templates that print them with tojson
/// expect the object, others (DeepSeek's) the string.
fn parse_arguments(message: &mut serde_json::Value) {
    let calls = message.get_mut("tool_calls").and_then(|calls| calls.as_array_mut());
    for call in calls.into_iter().flatten() {
        let arguments = call.get_mut("function").and_then(|f| f.get_mut("arguments"));
        if let Some(arguments) = arguments {
            if let Some(Ok(object)) = arguments.as_str().map(serde_json::from_str) {
                *arguments = object;
            }
        }
    }
}

fn collect_guards(value: &serde_json::Value, used: &mut HashSet<char>) {
    match value {
        serde_json::Value::String(s) => used.extend(s.chars().filter(|c| GUARDS.contains(c))),
        serde_json::Value::Array(list) => list.iter().for_each(|v| collect_guards(v, used)),
        serde_json::Value::Object(map) => map.values().for_each(|v| collect_guards(v, used)),
        _ => {}
    }
}
