import com.google.protobuf.ByteString;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.EnumValueDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Message;
import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.FileInputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads messages with Java's DynamicMessage, as Spark's from_protobuf does, and prints each as JSON in a line.
 *
 * The file that is named: int32 number of cases; of each a descriptor set, a byte that says whether zeros are emitted,
 * int32 number of values, and these; byte strings have their int32 length before them. Message M0 is the value. A bad
 * one is {"bad": why}. Integers are decimal texts, floats the bits of a double, texts and bytes hex, enums [name, number].
 */
public class ProtobufReader {
    static boolean zeros;

    public static void main(String[] arguments) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(new FileInputStream(arguments[0]), 1 << 16));
        StringBuilder out = new StringBuilder();
        for (int cases = in.readInt(); cases > 0; cases--) {
            Descriptor descriptor = outermost(FileDescriptorSet.parseFrom(bytes(in)));
            zeros = in.readBoolean();
            for (int values = in.readInt(); values > 0; values--) {
                byte[] value = bytes(in);
                try {
                    DynamicMessage message = DynamicMessage.parseFrom(descriptor, value);
                    for (int number : message.getUnknownFields().asMap().keySet())
                        if (descriptor.findFieldByNumber(number) != null) throw new Exception("another wire type");
                    write(message, out);
                } catch (Exception error) {
                    out.append("{\"bad\": \"").append(error.getMessage().replace('\n', ' ')).append("\"}");
                }
                out.append('\n');
            }
        }
        new PrintStream(System.out, true, StandardCharsets.UTF_8).print(out);
    }

    static byte[] bytes(DataInputStream in) throws Exception {
        byte[] found = new byte[in.readInt()];
        in.readFully(found);
        return found;
    }

    static Descriptor outermost(FileDescriptorSet set) throws Exception {
        Map<String, FileDescriptor> files = new LinkedHashMap<>();
        Descriptor found = null;
        for (var file : set.getFileList()) {
            List<FileDescriptor> needed = new ArrayList<>();
            for (String name : file.getDependencyList()) needed.add(files.get(name));
            files.put(file.getName(), FileDescriptor.buildFrom(file, needed.toArray(new FileDescriptor[0])));
            found = files.get(file.getName()).findMessageTypeByName("M0");
        }
        return found;
    }

    static void write(Message message, StringBuilder out) {
        String between = "{";
        boolean entry = message.getDescriptorForType().getOptions().getMapEntry();
        boolean time = message.getDescriptorForType().getFullName().equals("google.protobuf.Timestamp");
        for (FieldDescriptor field : message.getDescriptorForType().getFields()) {
            out.append(between).append('"').append(field.getName()).append("\": ");
            between = ", ";
            if (field.isRepeated()) {
                String comma = "[";
                for (Object one : (List<?>) message.getField(field)) {
                    out.append(comma);
                    writeOne(one, out);
                    comma = ", ";
                }
                out.append(comma.equals("[") ? "[]" : "]");
            } else if (entry || time || message.hasField(field) || field.hasDefaultValue() || !field.hasPresence() && zeros) {
                writeOne(message.getField(field), out);
            } else {
                out.append("null");
            }
        }
        out.append(between.equals("{") ? "{}" : "}");
    }

    static void writeOne(Object value, StringBuilder out) {
        if (value instanceof Message message) write(message, out);
        else if (value instanceof Boolean) out.append(value);
        else if (value instanceof Float || value instanceof Double)
            out.append('"').append(Double.doubleToLongBits(((Number) value).doubleValue())).append('"');
        else if (value instanceof ByteString bytes) out.append('"').append(HexFormat.of().formatHex(bytes.toByteArray())).append('"');
        else if (value instanceof String text)
            out.append('"').append(HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8))).append('"');
        else if (value instanceof EnumValueDescriptor one)
            out.append("[\"").append(one.getName()).append("\", ").append(one.getNumber()).append(']');
        else out.append('"').append(value).append('"');
    }
}
