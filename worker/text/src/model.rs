// SPDX-License-Identifier: Apache-2.0
//
// A model directory's tokenizer: what is read from which file, and text to ids.

use crate::chat::Chat;
use crate::pieces::Pieces;
use serde_json::Value;
use std::path::Path;
use tokenizers::tokenizer::pre_tokenizer::OffsetType;
use tokenizers::{Encoding, Model, PostProcessor, PreTokenizer, Tokenizer};

pub struct Text {
    tokenizer: Tokenizer,
    chat: Option<Chat>,
    bos_id: Option<u32>,
    add_bos: Option<bool>, // None: what the post-processor of tokenizer.json does
    pub pieces: Pieces,
    pub eos_ids: Vec<u32>,
}

/// A JSON file of the directory; Null if it does not exist.
fn read_json(dir: &Path, name: &str) -> Result<Value, String> {
    let path = dir.join(name);
    match std::fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| format!("{}: {e}", path.display())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Value::Null),
        Err(e) => Err(format!("{}: {e}", path.display())),
    }
}

/// bos_token and its like are a string, or an object that holds it as `content`.
fn special_token(config: &Value, key: &str) -> Option<String> {
    let value = &config[key];
    value.as_str().or_else(|| value["content"].as_str()).map(str::to_string)
}

/// The template: chat_template.jinja before tokenizer_config.json, as transformers has it.
fn chat_template(dir: &Path, config: &Value) -> Result<Option<String>, String> {
    let path = dir.join("chat_template.jinja");
    match std::fs::read_to_string(&path) {
        Ok(source) => return Ok(Some(source)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(format!("{}: {e}", path.display())),
    }
    match &config["chat_template"] {
        Value::String(source) => Ok(Some(source.clone())),
        Value::Array(named) => Ok(named
            .iter()
            .find(|t| t["name"] == "default")
            .and_then(|t| t["template"].as_str())
            .map(str::to_string)),
        _ => Ok(None),
    }
}

fn push_ids(ids: &mut Vec<u32>, value: &Value) {
    let found = value.as_array().map_or_else(|| vec![value], |list| list.iter().collect());
    for id in found.iter().filter_map(|v| v.as_u64()).filter_map(|v| u32::try_from(v).ok()) {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
}

impl Text {
    pub fn open(dir: &Path) -> Result<Text, String> {
        let path = dir.join("tokenizer.json");
        let bytes = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let named = |e: String| format!("{}: {e}", path.display());
        let mut tokenizer = Tokenizer::from_bytes(&bytes).map_err(|e| named(e.to_string()))?;
        // A tokenizer file may carry its training set-up; a prompt is never cut or padded.
        tokenizer.with_truncation(None).map_err(|e| named(e.to_string()))?;
        tokenizer.with_padding(None);
        let json: Value = serde_json::from_slice(&bytes).map_err(|e| named(e.to_string()))?;
        let pieces = Pieces::new(&tokenizer, &json["decoder"]).map_err(named)?;

        let config = read_json(dir, "tokenizer_config.json")?;
        let bos = special_token(&config, "bos_token");
        let eos = special_token(&config, "eos_token");
        let mut eos_ids = vec![];
        push_ids(&mut eos_ids, &read_json(dir, "generation_config.json")?["eos_token_id"]);
        push_ids(&mut eos_ids, &read_json(dir, "config.json")?["eos_token_id"]);
        if let Some(id) = eos.as_ref().and_then(|token| tokenizer.token_to_id(token)) {
            push_ids(&mut eos_ids, &Value::from(id));
        }
        let chat = match chat_template(dir, &config)? {
            Some(source) => Some(
                Chat::new(source, &config, &tokenizer)
                    .map_err(|e| format!("{}: chat template: {e}", dir.display()))?,
            ),
            None => None,
        };
        Ok(Text {
            bos_id: bos.and_then(|token| tokenizer.token_to_id(&token)),
            add_bos: config["add_bos_token"].as_bool(),
            tokenizer,
            chat,
            pieces,
            eos_ids,
        })
    }

    /// The steps of Tokenizer::encode, with one more: `guard` characters, which keep control
    /// tokens in user text from being found (chat.rs), vanish once the tokens are found.
    fn encode(&self, text: &str, guard: Option<char>) -> Result<Encoding, String> {
        let tokenizer = &self.tokenizer;
        let run = || -> tokenizers::Result<Encoding> {
            let added = tokenizer.get_added_vocabulary();
            let mut splits = added.extract_and_normalize(tokenizer.get_normalizer(), text);
            if let Some(guard) = guard {
                splits.normalize(|s| s.replace(guard, ""))?;
            }
            if let Some(pre_tokenizer) = tokenizer.get_pre_tokenizer() {
                pre_tokenizer.pre_tokenize(&mut splits)?;
            }
            splits.tokenize(|s| tokenizer.get_model().tokenize(s.get()))?;
            splits.into_encoding(None, 0, OffsetType::None)
        };
        run().map_err(|e| format!("the text cannot be tokenised: {e}"))
    }

    pub fn encode_prompt(&self, prompt: &str) -> Result<Vec<u32>, String> {
        let mut encoding = self.encode(prompt, None)?;
        let spelled = self.bos_id.is_some() && encoding.get_ids().first() == self.bos_id.as_ref();
        if spelled || self.add_bos == Some(false) {
            return Ok(encoding.get_ids().to_vec());
        }
        if let (Some(true), Some(bos)) = (self.add_bos, self.bos_id) {
            let ids = encoding.get_ids().iter();
            return Ok(std::iter::once(bos).chain(ids.copied()).collect());
        }
        if let Some(post) = self.tokenizer.get_post_processor() {
            encoding = post.process(encoding, None, true).map_err(|e| e.to_string())?;
        }
        Ok(encoding.get_ids().to_vec())
    }

    pub fn encode_chat(&self, messages: &str, now_s: i64) -> Result<Vec<u32>, String> {
        let chat =
            self.chat.as_ref().ok_or("this model has no chat template; use /v1/completions")?;
        let (text, guard) = chat.render(messages, now_s)?;
        Ok(self.encode(&text, Some(guard))?.get_ids().to_vec())
    }

    pub fn decode(&self, ids: &[u32]) -> Result<String, String> {
        self.tokenizer.decode(ids, true).map_err(|e| e.to_string())
    }
}
