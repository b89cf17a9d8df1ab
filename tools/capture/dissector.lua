-- Wireshark's view of the Millrace protocol (docs/protocol.md). The names of types, operations, statuses and
-- dtypes stand before this text in the installed file: they are made from the headers when it is built.
--
--   tshark -X lua_script:millrace.lua -r x.pcapng
--
-- It works from Lua 5.1 on, and needs none of Wireshark's libraries for bits.

-- Wireshark may find it twice: in a folder of plug-ins, and by -X lua_script. The first counts.
local is_new, millrace = pcall(Proto, "millrace", "Millrace")
if not is_new then
    return
end

local HELLO, RETRY, ACCEPT, DATA, ACK, RESEND, BUSY, RESET, BYE, PING, PATH, VERSION =
    type_of.HELLO, type_of.RETRY, type_of.ACCEPT, type_of.DATA, type_of.ACK, type_of.RESEND, type_of.BUSY,
    type_of.RESET, type_of.BYE, type_of.PING, type_of.PATH, 255
local FLAG_REPLY, FLAG_BUNDLE, FLAG_PROBE = 0x1, 0x2, 0x4
local FRAME_BYTES, PREAMBLE_BYTES, TENSOR_BYTES, ALIGN = 16, 32, 32, 64
local PUSH_PIECES = 0x10

type_names[VERSION] = "VERSION"

-- ---- fields ----

local fields = {}
local function field(name, kind, text, ...)
    fields[name] = ProtoField[kind]("millrace." .. name, text, ...)
    return fields[name]
end

field("magic", "uint16", "Magic", base.HEX)
field("version", "uint8", "Version")
field("type", "uint8", "Type", base.DEC, type_names)
field("flags", "uint16", "Flags", base.HEX)
field("flags.reply", "bool", "Reply", 16, nil, FLAG_REPLY)
field("flags.bundle", "bool", "Bundle", 16, nil, FLAG_BUNDLE)
field("flags.probe", "bool", "Probe", 16, nil, FLAG_PROBE)
field("payload_bytes", "uint16", "Payload bytes")
field("session", "uint64", "Session", base.HEX)
field("core", "uint8", "Core")
field("call", "uint64", "Call")
field("client_nonce", "uint64", "Client nonce", base.HEX)
field("message_bytes", "uint32", "Message bytes")
field("segment_bytes", "uint32", "Segment bytes")
field("segment", "uint16", "Segment number")
field("incarnation", "uint32", "Incarnation")
field("clock_us", "uint32", "Clock (us)")
field("number", "uint64", "Packet number")
field("tag", "uint64", "Tag", base.HEX)

field("client_uuid", "bytes", "Client's UUID")
field("boot_nonce", "uint64", "Boot nonce", base.HEX)
field("wanted_session", "uint64", "Session to keep", base.HEX)
field("key_id", "uint32", "Key id", base.HEX)
field("receive_buffer_bytes", "uint32", "Receive buffer")
field("udp_bytes_max", "uint32", "Largest UDP payload")
field("window", "uint16", "Call slots")
field("core_count", "uint16", "Cores")
field("arrived_core", "uint16", "Core whose queue it came by")
field("cookie", "bytes", "Cookie")
field("proof", "bytes", "Proof")
field("last_push_step", "uint64", "Last push step")
field("start_id", "uint64", "Start id", base.HEX)
field("lineage", "uint32", "Lineage", base.HEX)
field("restores", "uint32", "Restores by call")
field("grant_bytes", "uint32", "Grant")
field("map_version", "uint32", "Map version")
field("asked_version", "uint8", "Version of the HELLO")
field("echo", "bytes", "Of the HELLO")
field("capabilities", "uint64", "Capabilities", base.HEX)
field("version_text", "stringz", "Version of the sender")

field("received_bytes", "uint32", "Received bytes")
field("sack", "bytes", "Segments after the first gap")
field("next_call", "uint64", "Next call")
field("slots_over", "uint64", "Slots that are over", base.HEX)
field("reply_window", "uint64", "Replies in flight (0: as before)")
field("path", "bytes", "Padding")

field("message", "none", "Message")
field("op", "uint8", "Operation", base.DEC, op_names)
field("is_reply", "bool", "Is a reply")
field("priority", "uint8", "Priority")
field("table", "uint16", "Table or variable")
field("status", "uint16", "Status", base.DEC, status_names)
field("message_flags", "uint16", "Message flags", base.HEX)
field("tensor_count", "uint16", "Tensors")
field("epoch", "uint16", "Epoch of the map")
field("deadline_ms", "uint32", "Time left (ms)")
field("step", "uint64", "Step")
field("checkpoint", "uint64", "Checkpoint")
field("sequence", "uint64", "Sequence")
field("tensor", "none", "Tensor")
field("dtype", "uint8", "Type of elements", base.DEC, dtype_names)
field("rank", "uint8", "Rank")
field("dims", "string", "Dims")
field("tensor_bytes", "uint64", "Bytes")
field("keys", "uint64", "Keys")
field("error_text", "string", "Error")
field("data", "bytes", "Segment")

field("request_in", "framenum", "Request in", base.NONE, frametype and frametype.REQUEST)
field("reply_in", "framenum", "Reply in", base.NONE, frametype and frametype.RESPONSE)
field("time", "float", "Time since the request (s)")
local all_fields = {}
for _, one in pairs(fields) do
    table.insert(all_fields, one)
end
millrace.fields = all_fields

-- ---- what else is to be said ----

local experts = {
    again = ProtoExpert.new("millrace.again", "Sent again", expert.group.SEQUENCE, expert.severity.NOTE),
    busy = ProtoExpert.new("millrace.busy", "The call was not executed, and is made again", expert.group.SEQUENCE,
        expert.severity.NOTE),
    reset = ProtoExpert.new("millrace.reset", "The server has no such session", expert.group.SEQUENCE,
        expert.severity.WARN),
    resend = ProtoExpert.new("millrace.resend", "Segments are missing", expert.group.SEQUENCE,
        expert.severity.NOTE),
    refused = ProtoExpert.new("millrace.refused", "The call ended with an error", expert.group.RESPONSE_CODE,
        expert.severity.NOTE),
    malformed = ProtoExpert.new("millrace.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR),
}
local all_experts = {}
for _, one in pairs(experts) do
    table.insert(all_experts, one)
end
millrace.experts = all_experts

millrace.prefs.ports = Pref.range("UDP ports", "7700-7763", "Ports of servers; others are known by their packets", 65535)

-- ---- bytes ----

local function has(flags, flag)
    return math.floor(flags / flag) % 2 == 1
end

-- Bytes that were captured from there on.
local function left(tvb, at)
    return math.max(0, tvb:len() - at)
end

-- Adds a field, as far as its bytes were captured.
local function add(tree, name, tvb, at, bytes)
    if left(tvb, at) >= bytes then
        return tree:add_le(fields[name], tvb(at, bytes))
    end
end

-- Adds fields that follow each other: {name, bytes, ...}; a name of false is skipped.
local function add_all(tree, tvb, at, list)
    for i = 1, #list, 2 do
        if list[i] then
            add(tree, list[i], tvb, at, list[i + 1])
        end
        at = at + list[i + 1]
    end
    return at
end

local function name_of(names, value)
    return names[value] or tostring(value)
end

-- ---- calls ----

-- By session and call: the frames of request and reply, and the operation. Made in the first pass through the
-- file, in order; later looks only read it.
local calls = {}
-- By session, side, call and segment: the frame that had it first.
local sent = {}

function millrace.init()
    calls, sent = {}, {}
end

local function call_of(header, call_id)
    local key = header.session .. ":" .. call_id
    if not calls[key] then
        calls[key] = {}
    end
    return calls[key]
end

local function note_message(pinfo, header, call_id, op)
    local call = call_of(header, call_id)
    if not pinfo.visited then
        call.op = call.op or op
        if header.is_reply and not call.reply then
            call.reply, call.reply_time = pinfo.number, pinfo.abs_ts
        elseif not header.is_reply and not call.request then
            call.request, call.request_time = pinfo.number, pinfo.abs_ts
        end
    end
    return call
end

local function note_sent(pinfo, tree, header, call_id)
    local key = header.session .. (header.is_reply and "<" or ">") .. call_id .. "/" .. header.segment
    if not pinfo.visited and not sent[key] then
        sent[key] = pinfo.number
    end
    if sent[key] and sent[key] < pinfo.number then
        tree:add_proto_expert_info(experts.again, "Sent again, first in frame " .. sent[key])
    end
end

local function add_links(tree, pinfo, header, call)
    if header.is_reply and call.request then
        tree:add(fields.request_in, call.request):set_generated()
        if call.reply == pinfo.number then
            tree:add(fields.time, call.reply_time - call.request_time):set_generated()
        end
    elseif not header.is_reply and call.reply then
        tree:add(fields.reply_in, call.reply):set_generated()
    end
end

-- ---- messages ----

local function dims_of(tvb, at)
    local rank, dims = tvb(at + 1, 1):uint(), {}
    for i = 1, math.min(rank, 4) do
        dims[i] = tvb(at + 4 * i, 4):le_uint()
    end
    return rank, dims
end

local function padded(bytes)
    return math.ceil(bytes / ALIGN) * ALIGN
end

-- Tensors with their descriptors, as far as those were captured: dtype, dims, where the data is, and how much.
local function read_tensors(tvb, at, count)
    local tensors, data = {}, at + PREAMBLE_BYTES + count * TENSOR_BYTES
    for i = 1, count do
        local place = at + PREAMBLE_BYTES + (i - 1) * TENSOR_BYTES
        if left(tvb, place) < TENSOR_BYTES then
            break
        end
        local rank, dims = dims_of(tvb, place)
        local bytes = tvb(place + 24, 8):le_uint64():tonumber()
        data = at + padded(data - at)
        tensors[i] = {place = place, dtype = tvb(place, 1):uint(), rank = rank, dims = dims, data = data, bytes = bytes}
        data = data + bytes
    end
    return tensors
end

local function text_of(tensor)
    return name_of(dtype_names, tensor.dtype) .. "[" .. table.concat(tensor.dims, ", ") .. "]"
end

local function add_tensors(tree, tvb, tensors)
    local texts = {}
    for i, tensor in ipairs(tensors) do
        texts[i] = text_of(tensor)
        local branch = tree:add(fields.tensor, tvb(tensor.place, TENSOR_BYTES))
        branch:set_text("Tensor " .. (i - 1) .. ": " .. texts[i])
        add_all(branch, tvb, tensor.place, {"dtype", 1, "rank", 1})
        branch:add(fields.dims, tvb(tensor.place + 4, 16), table.concat(tensor.dims, ", "))
        add(branch, "tensor_bytes", tvb, tensor.place + 24, 8)
    end
    return table.concat(texts, " ")
end

local function has_dtype(tensor, name, rank)
    return tensor ~= nil and dtype_names[tensor.dtype] == name and tensor.rank == rank
end

-- The head of a feature's part in a push or a feed is u32[4]; keys follow, but for pieces of a variable.
local function keys_after_head(tvb, tensors, i)
    local head, keys = tensors[i], tensors[i + 1]
    if not (has_dtype(head, "u32", 1) and head.dims[1] == 4 and has_dtype(keys, "u64", 1)) then
        return 0
    end
    local is_pieces = left(tvb, head.data) >= 8 and has(tvb(head.data + 4, 4):le_uint(), PUSH_PIECES)
    return is_pieces and 0 or keys.dims[1]
end

local function keys_of(tvb, op, tensors)
    if op == op_of.LOOKUP then
        return has_dtype(tensors[1], "u64", 1) and tensors[1].dims[1] or nil
    end
    if op ~= op_of.PUSH_GRAD and op ~= op_of.FEED_SAMPLE then
        return nil
    end
    local keys = 0
    for i = 1, #tensors - 1 do
        keys = keys + keys_after_head(tvb, tensors, i)
    end
    return keys
end

local function add_error(tree, tvb, tensors)
    local text = tensors[1]
    if has_dtype(text, "u8", 1) and text.bytes > 0 and left(tvb, text.data) > 0 then
        tree:add(fields.error_text, tvb(text.data, math.min(text.bytes, left(tvb, text.data))))
    end
end

local function add_preamble(tree, tvb, at, is_reply)
    tree:add(fields.is_reply, is_reply):set_generated()
    add_all(tree, tvb, at, {"op", 1, "priority", 1, "table", 2, "status", 2, "message_flags", 2, "tensor_count", 2,
        "epoch", 2, is_reply and "restores" or "deadline_ms", 4, is_reply and "checkpoint" or "step", 8, "sequence", 8})
end

-- Returns what is said of the message in one line.
local function dissect_message(tvb, pinfo, tree, header, call_id, at, bytes)
    local branch = tree:add(fields.message, tvb(at, math.min(bytes, left(tvb, at))))
    if left(tvb, at) == 0 then
        return "message " .. call_id
    end
    local op = tvb(at, 1):uint()
    local status = left(tvb, at) >= 6 and tvb(at + 4, 2):le_uint() or 0
    local tensor_count = left(tvb, at) >= 10 and tvb(at + 8, 2):le_uint() or 0
    local what = name_of(op_names, op) .. (header.is_reply and " reply" or "")
    local call = note_message(pinfo, header, call_id, op)
    add_preamble(branch, tvb, at, header.is_reply)
    local tensors = read_tensors(tvb, at, tensor_count)
    local texts = add_tensors(branch, tvb, tensors)
    local keys = not header.is_reply and keys_of(tvb, op, tensors)
    if keys then
        branch:add(fields.keys, UInt64(keys)):set_generated()
    end
    if status ~= 0 then
        what = what .. " " .. name_of(status_names, status)
        branch:add_proto_expert_info(experts.refused)
        add_error(branch, tvb, tensors)
    end
    add_links(branch, pinfo, header, call)
    branch:set_text("Message: " .. what .. ", call " .. call_id .. (texts ~= "" and ": " or "") .. texts)
    return what .. " " .. call_id .. (texts ~= "" and " " or "") .. texts
end

-- ---- payloads ----

local function dissect_bundle(tvb, pinfo, tree, header, at)
    local texts, stop = {}, at + header.payload_bytes
    while at + FRAME_BYTES <= stop and left(tvb, at) >= FRAME_BYTES do
        local call_id, bytes = tostring(tvb(at, 8):le_uint64()), tvb(at + 8, 4):le_uint()
        local branch = tree:add(millrace, tvb(at, math.min(FRAME_BYTES + bytes, left(tvb, at))), "Frame")
        add_all(branch, tvb, at, {"call", 8, "message_bytes", 4})
        at = at + FRAME_BYTES
        if bytes < PREAMBLE_BYTES or at + bytes > stop then
            branch:add_proto_expert_info(experts.malformed, "The frame does not fit into its packet")
            break
        end
        note_sent(pinfo, branch, header, call_id)
        table.insert(texts, dissect_message(tvb, pinfo, branch, header, call_id, at, bytes))
        at = at + math.ceil(bytes / 8) * 8
    end
    return #texts .. " messages: " .. table.concat(texts, "; ")
end

local function dissect_segment(tvb, pinfo, tree, header, at)
    local segments = math.ceil(header.message_bytes / header.segment_bytes)
    local what = ", segment " .. header.segment .. " of " .. segments
    if header.segment == 0 then
        return dissect_message(tvb, pinfo, tree, header, header.call, at, header.payload_bytes) .. what
    end
    local call = call_of(header, header.call)
    if left(tvb, at) > 0 then
        tree:add(fields.data, tvb(at, math.min(header.payload_bytes, left(tvb, at))))
    end
    if call.op then
        tree:add(fields.op, call.op):set_generated()
    end
    add_links(tree, pinfo, header, call)
    return (call.op and name_of(op_names, call.op) or "message") .. (header.is_reply and " reply " or " ") ..
        header.call .. what
end

local function dissect_data(tvb, pinfo, tree, header, at)
    if has(header.flags, FLAG_BUNDLE) then
        return dissect_bundle(tvb, pinfo, tree, header, at)
    end
    note_sent(pinfo, tree, header, header.call)
    if header.segment_bytes ~= 0 then
        return dissect_segment(tvb, pinfo, tree, header, at)
    end
    return dissect_message(tvb, pinfo, tree, header, header.call, at, header.payload_bytes)
end

local function dissect_hello(tvb, tree, at)
    add_all(tree, tvb, at, {"client_uuid", 16, "boot_nonce", 8, "client_nonce", 8, "wanted_session", 8, "key_id", 4,
        "receive_buffer_bytes", 4, "udp_bytes_max", 2, "window", 2, "core", 2, false, 2, "cookie", 16, "proof", 32,
        "capabilities", 8, "version_text", 16})
    local has_cookie = left(tvb, at) >= 72 and tvb(at + 56, 16):bytes():tohex() ~= string.rep("0", 32)
    return has_cookie and "with a cookie" or "without a cookie"
end

local function dissect_retry(tvb, tree, at)
    add(tree, "cookie", tvb, at, 16)
    return ""
end

local function dissect_accept(tvb, tree, at)
    add_all(tree, tvb, at, {"session", 8, "client_nonce", 8, "last_push_step", 8, "start_id", 8, "lineage", 4,
        "restores", 4, "incarnation", 4, "grant_bytes", 4, "map_version", 4, "udp_bytes_max", 2, "window", 2, "core", 2,
        "core_count", 2, "arrived_core", 2, false, 2, "proof", 32, "capabilities", 8, "version_text", 16})
    return left(tvb, at) >= 8 and "session 0x" .. tvb(at, 8):le_uint64():tohex() or ""
end

-- Of the session: call id 0, and the fields have other meanings.
local function dissect_slots(tvb, tree, at)
    add_all(tree, tvb, at, {"next_call", 8, "segment_bytes", 4, false, 4, "slots_over", 8, "reply_window", 8})
    return "of slots"
end

local function dissect_ack(tvb, tree, header, at)
    if header.is_reply and header.call == "0" then
        return dissect_slots(tvb, tree, at)
    end
    add_all(tree, tvb, at, {"received_bytes", 4, "grant_bytes", 4, "segment_bytes", 4, false, 4, "sack", 32})
    local call = call_of(header, header.call)
    if call.op then
        tree:add(fields.op, call.op):set_generated()
    end
    local received = left(tvb, at) >= 4 and tvb(at, 4):le_uint() .. " bytes" or ""
    local of = header.is_reply and " of the reply to " or " of "
    return received .. of .. (call.op and name_of(op_names, call.op) .. " " or "call ") .. header.call
end

local function dissect_path(tvb, tree, header, at)
    if header.is_reply and header.call == "0" then
        add(tree, "udp_bytes_max", tvb, at, 4)
        return "reported by a router"
    end
    if left(tvb, at) > 0 then
        tree:add(fields.path, tvb(at, left(tvb, at)))
    end
    return (56 + header.payload_bytes) .. " bytes"
end

local function dissect_payload(tvb, pinfo, tree, header, at)
    if header.type == DATA then
        return dissect_data(tvb, pinfo, tree, header, at)
    elseif header.type == HELLO then
        return dissect_hello(tvb, tree, at)
    elseif header.type == RETRY then
        return dissect_retry(tvb, tree, at)
    elseif header.type == ACCEPT then
        return dissect_accept(tvb, tree, at)
    elseif header.type == ACK or header.type == RESEND then
        return dissect_ack(tvb, tree, header, at)
    elseif header.type == PATH then
        return dissect_path(tvb, tree, header, at)
    end
    return header.call ~= "0" and "call " .. header.call or ""
end

-- ---- packets ----

local function read_header(tvb)
    local flags = tvb(4, 2):le_uint()
    return {
        type = tvb(3, 1):uint(),
        flags = flags,
        is_reply = has(flags, FLAG_REPLY),
        payload_bytes = tvb(6, 2):le_uint(),
        session = tostring(tvb(8, 8):le_uint64()),
        call = tostring(tvb(16, 8):le_uint64()),
        message_bytes = tvb(24, 4):le_uint(),
        segment_bytes = tvb(28, 2):le_uint(),
        segment = tvb(30, 2):le_uint(),
    }
end

local function add_header(tree, tvb, header)
    local is_session = header.type == HELLO or header.type == RETRY or header.type == ACCEPT
    add_all(tree, tvb, 0, {"magic", 2, "version", 1, "type", 1})
    local flags = tree:add_le(fields.flags, tvb(4, 2))
    for _, name in ipairs({"flags.reply", "flags.bundle", "flags.probe"}) do
        flags:add_le(fields[name], tvb(4, 2))
    end
    add_all(tree, tvb, 6, {"payload_bytes", 2, "session", 8, is_session and "client_nonce" or "call", 8,
        "message_bytes", 4, "segment_bytes", 2, "segment", 2, "incarnation", 4, "clock_us", 4, "number", 8, "tag", 8})
    if not is_session then
        tree:add(fields.core, tvb(8, 1)):set_generated()
    end
end

local notes = {[BUSY] = experts.busy, [RESET] = experts.reset, [RESEND] = experts.resend}

local function dissect_version(tvb, pinfo, tree)
    add_all(tree, tvb, 0, {"magic", 2, "version", 1, "type", 1, "asked_version", 1, false, 3, "echo", 24})
    pinfo.cols.info = "VERSION: the server speaks version " .. tvb(2, 1):uint() .. ", asked was " .. tvb(4, 1):uint()
end

function millrace.dissector(tvb, pinfo, root)
    if tvb:len() < header_bytes or tvb(0, 2):le_uint() ~= magic then
        return 0
    end
    pinfo.cols.protocol = "Millrace"
    local tree = root:add(millrace, tvb())
    if tvb(3, 1):uint() == VERSION then
        dissect_version(tvb, pinfo, tree)
        return tvb:len()
    end
    local header = read_header(tvb)
    add_header(tree, tvb, header)
    if tvb(2, 1):uint() ~= protocol_version then
        pinfo.cols.info = name_of(type_names, header.type) .. " of protocol version " .. tvb(2, 1):uint()
        return tvb:len()
    end
    if header_bytes + header.payload_bytes ~= tvb:reported_len() then
        tree:add_proto_expert_info(experts.malformed, "The packet is not as long as its header says")
    end
    local text = dissect_payload(tvb, pinfo, tree, header, header_bytes)
    if notes[header.type] then
        tree:add_proto_expert_info(notes[header.type])
    end
    pinfo.cols.info = name_of(type_names, header.type) .. (has(header.flags, FLAG_PROBE) and " PROBE" or "") ..
        (text ~= "" and " " or "") .. text
    tree:append_text(", " .. name_of(type_names, header.type))
    return tvb:len()
end

-- ---- which packets are Millrace's ----

local function is_millrace(tvb)
    if tvb:len() < header_bytes or tvb(0, 2):le_uint() ~= magic or not type_names[tvb(3, 1):uint()] then
        return false
    end
    if tvb(3, 1):uint() == VERSION then
        return tvb:reported_len() == 56
    end
    return header_bytes + tvb(6, 2):le_uint() == tvb:reported_len()
end

millrace:register_heuristic("udp", function(tvb, pinfo, tree)
    if not is_millrace(tvb) then
        return false
    end
    millrace.dissector(tvb, pinfo, tree)
    return true
end)

local udp_ports, ports = DissectorTable.get("udp.port"), nil

local function take_ports()
    if ports == millrace.prefs.ports then
        return
    end
    if ports then
        udp_ports:remove(ports, millrace)
    end
    ports = millrace.prefs.ports
    udp_ports:add(ports, millrace)
end

millrace.prefs_changed = take_ports
take_ports()
